"""What a report asks of the history, in Spark SQL; `{history}` and the like are other answers.

Times are seconds. A delivery is a lease and the next thing that happened to it: `queued` before it,
`held` from it on, of which the worker says how long it was in its buffer and in its handler. A
message that was published with a delay counts from when it was delivered, not from when it was
published.
"""

EVENTS = """
SELECT topic, partition, `group`, message_id, event, event_time, attempt, outcome, error_type,
       error_message, fingerprint, due_time, entry, buffer_seconds, handler_seconds,
       struct(CAST(split(offset, '[-:]')[0] AS BIGINT) AS ms,
              CAST(split(offset, '[-:]')[1] AS BIGINT) AS number,
              CAST(split(offset, '[-:]')[2] AS BIGINT) AS item) AS position
FROM {history}
"""

DELIVERIES = """
SELECT topic, `group`, message_id, attempt, buffer, handler, event_time AS at,
       next_type AS error_type, next_message AS error_message,
       row_number() OVER (PARTITION BY topic, partition, `group`, message_id ORDER BY position) > 1
       AS again,
       CASE WHEN next IN ('succeed', 'fail', 'release', 'expire') THEN next END AS settled,
       (unix_micros(next_at) - unix_micros(event_time)) / 1e6 AS held,
       CASE WHEN made_ready THEN (unix_micros(event_time) - unix_micros(before_at)) / 1e6 END
       AS queued
FROM (SELECT *, lead(event) OVER steps AS next, lead(event_time) OVER steps AS next_at,
             lead(error_type) OVER steps AS next_type,
             lead(error_message) OVER steps AS next_message,
             lead(buffer_seconds) OVER steps AS buffer, lead(handler_seconds) OVER steps AS handler,
             lag(event_time) OVER steps AS before_at,
             lag(outcome) OVER steps = 'ready' AS made_ready
      FROM {events}
      WHERE event IN ('lease', 'succeed', 'fail', 'release', 'expire', 'promote', 'redrive',
                      'replay')
      WINDOW steps AS (PARTITION BY topic, partition, `group`, message_id ORDER BY position))
WHERE event = 'lease'
"""

MESSAGES = """
WITH born AS (
    SELECT topic, message_id,
           coalesce(min(event_time) FILTER (WHERE event = 'deliver'),
                    min(event_time) FILTER (WHERE event = 'publish')) AS ready_at
    FROM {events} WHERE event IN ('publish', 'deliver') GROUP BY topic, message_id),
tried AS (
    SELECT topic, `group`, message_id,
           count(*) FILTER (WHERE event = 'lease') AS deliveries,
           min(event_time) FILTER (WHERE event = 'lease') AS leased_at,
           min(event_time) FILTER (WHERE event = 'succeed') AS succeeded_at,
           count(*) FILTER (WHERE outcome = 'dead') > 0 AS died,
           max_by(outcome, position) <=> 'dead' AS dead
    FROM {events} WHERE `group` IS NOT NULL GROUP BY topic, `group`, message_id)
SELECT topic, `group`, message_id, deliveries, succeeded_at IS NOT NULL AS committed, died, dead,
       (unix_micros(leased_at) - unix_micros(ready_at)) / 1e6 AS waited,
       (unix_micros(succeeded_at) - unix_micros(ready_at)) / 1e6 AS to_success
FROM tried LEFT JOIN born USING (topic, message_id) WHERE deliveries > 0
"""

GROUPS = """
WITH handled AS (
    SELECT topic, `group`, sum(handler) AS handler_seconds,
           sum(handler) FILTER (WHERE settled <> 'succeed') AS wasted_seconds,
           percentile_approx(handler, 0.95) AS handler_p95,
           sum(held) FILTER (WHERE settled IS NOT NULL) AS held_seconds
    FROM {deliveries} GROUP BY topic, `group`),
counted AS (
    SELECT topic, `group`, count(*) AS messages, sum(deliveries) AS deliveries,
           count_if(committed) AS committed, count_if(died) AS died, count_if(dead) AS dead,
           sum(deliveries) / count(*) AS amplification
    FROM {messages} GROUP BY topic, `group`)
SELECT topic, `group`, messages, deliveries, amplification, committed, died, dead,
       handler_seconds, nvl2(handler_seconds, coalesce(wasted_seconds, 0), NULL) AS wasted_seconds,
       handler_p95, coalesce(held_seconds, 0) AS held_seconds
FROM counted JOIN handled USING (topic, `group`)
ORDER BY handler_p95 DESC NULLS LAST, topic, `group`
"""

ATTEMPTS = """
SELECT topic, `group`, attempt, count(*) AS deliveries,
       count_if(settled = 'succeed') AS succeeded, count_if(settled = 'fail') AS failed,
       count_if(settled = 'expire') AS expired, count_if(settled = 'release') AS released,
       count_if(settled = 'succeed') / count(*) AS success_rate
FROM {deliveries} GROUP BY topic, `group`, attempt ORDER BY topic, `group`, attempt
"""

TIMES = """
WITH measured AS (
    SELECT topic, `group`, message_id, 'waiting' AS measure, waited AS seconds FROM {messages}
    UNION ALL SELECT topic, `group`, message_id, 'to success', to_success FROM {messages}
    UNION ALL SELECT topic, `group`, message_id, 'queue', waited FROM {messages}
    UNION ALL SELECT topic, `group`, message_id, 'queue', queued FROM {deliveries}
    UNION ALL SELECT topic, `group`, message_id, 'buffer', buffer FROM {deliveries}
    UNION ALL SELECT topic, `group`, message_id, 'handler', handler FROM {deliveries}
    UNION ALL SELECT topic, `group`, message_id, 'held', held FROM {deliveries}
              WHERE settled IS NOT NULL),
summed AS (
    SELECT topic, `group`, measure, count(*) AS count, max(seconds) AS longest,
           array(max_by(message_id, seconds)) AS ids,
           percentile_approx(seconds, array(0.5, 0.9, 0.95, 0.99)) AS parts
    FROM measured WHERE seconds IS NOT NULL GROUP BY topic, `group`, measure)
SELECT topic, `group`, measure, count, parts[0] AS p50, parts[1] AS p90, parts[2] AS p95,
       parts[3] AS p99, longest, ids
FROM summed ORDER BY topic, `group`, measure
"""

DEAD = """
WITH deaths AS (
    SELECT topic, `group`, message_id, max_by(fingerprint, position) AS fingerprint,
           max_by(error_type, position) AS error_type,
           max_by(error_message, position) AS error_message, max(event_time) AS at
    FROM {events} WHERE outcome = 'dead' GROUP BY topic, `group`, message_id),
listed AS (
    SELECT d.*, m.dead AS still,
           row_number() OVER (PARTITION BY topic, `group`, d.fingerprint, d.error_type
                              ORDER BY message_id) AS rank
    FROM deaths d JOIN {messages} m USING (topic, `group`, message_id))
SELECT topic, `group`, fingerprint, error_type, count(*) AS died, count_if(still) AS dead,
       min(error_message) AS example,
       array_sort(collect_list(message_id) FILTER (WHERE rank <= 5)) AS ids,
       min(at) AS first_at, max(at) AS last_at
FROM listed GROUP BY topic, `group`, fingerprint, error_type
ORDER BY died DESC, topic, `group`, fingerprint
"""

LOSSES = """
WITH entries AS (
    SELECT DISTINCT topic, partition, entry, position.ms AS ms, event_time AS at
    FROM {events} WHERE entry IS NOT NULL),
steps AS (
    SELECT *, coalesce(lag(entry) OVER history, 0) AS behind
    FROM entries WINDOW history AS (PARTITION BY topic, partition ORDER BY ms, entry))
SELECT topic, partition, behind AS after_entry, entry AS next_entry, at AS next_at,
       CASE WHEN entry > behind THEN 'missing' ELSE 'written anew' END AS what,
       CASE WHEN entry > behind THEN entry - behind - 1 END AS missing_entries
FROM steps WHERE entry <> behind + 1 ORDER BY topic, partition, ms, entry
"""

COSTS = """
WITH spent AS (
    SELECT topic, `group`, count_if(again) AS retries, sum(handler) AS handler_seconds,
           sum(handler) FILTER (WHERE again) AS seconds
    FROM {deliveries} GROUP BY topic, `group`),
counted AS (
    SELECT topic, `group`, count_if(committed AND deliveries > 1) AS recovered,
           count_if(dead AND deliveries > 1) AS in_vain
    FROM {messages} GROUP BY topic, `group`),
joined AS (
    SELECT *, nvl2(handler_seconds, coalesce(seconds, 0), NULL) AS retry_seconds
    FROM spent JOIN counted USING (topic, `group`))
SELECT topic, `group`, retries, recovered, in_vain, retry_seconds,
       retry_seconds / 3600 * {hourly} AS cost,
       retry_seconds / 3600 * {hourly} / nullif(recovered, 0) AS cost_per_recovered
FROM joined ORDER BY retry_seconds DESC NULLS LAST, retries DESC, topic, `group`
"""

HOURS = """
WITH hourly AS (
    SELECT *, date_trunc('hour', at) AS hour, coalesce(settled IN ('fail', 'expire'), false) AS bad
    FROM {deliveries}),
ranked AS (
    SELECT *, dense_rank() OVER (PARTITION BY topic, `group`, hour, bad ORDER BY message_id) AS rank
    FROM hourly)
SELECT topic, `group`, hour, count(*) AS deliveries, count_if(bad) AS failed,
       array_sort(collect_set(message_id) FILTER (WHERE bad AND rank <= 5)) AS ids
FROM ranked GROUP BY topic, `group`, hour ORDER BY failed DESC, hour, topic, `group`
"""

DEPENDENCIES = r"""
WITH failures AS (
    SELECT *, coalesce(error_type, 'expired') AS error,
           coalesce(error_message, '') AS text
    FROM {deliveries} WHERE settled IN ('fail', 'expire')),
named AS (
    SELECT *, coalesce(
        nullif(regexp_extract(text, r'\w://(?:[^/\s@]*@)?([\w.-]+(?::\d+)?)', 1), ''),
        nullif(regexp_extract(text, r'\bhost(?:name)?[=:] *\W?([\w.-]+)', 1), ''),
        nullif(regexp_extract(text, r'\b((?:\w[\w-]*\.)+\w+:\d+|localhost:\d+)', 1), ''),
        error) AS dependency
    FROM failures),
ranked AS (
    SELECT *, dense_rank() OVER (PARTITION BY topic, `group`, dependency ORDER BY message_id)
              AS rank
    FROM named)
SELECT topic, `group`, dependency, count(*) AS failed, count(DISTINCT message_id) AS messages,
       array_sort(collect_set(message_id) FILTER (WHERE rank <= 5)) AS ids,
       min(at) AS first_at, max(at) AS last_at
FROM ranked GROUP BY topic, `group`, dependency ORDER BY failed DESC, topic, `group`, dependency
"""

TABLES = {
    "dead": DEAD,
    "costs": COSTS,
    "hours": HOURS,
    "dependencies": DEPENDENCIES,
    "times": TIMES,
    "groups": GROUPS,
    "attempts": ATTEMPTS,
    "losses": LOSSES,
}
"""The tables of a report, by the names of their files."""
