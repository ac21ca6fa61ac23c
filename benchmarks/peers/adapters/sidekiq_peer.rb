# frozen_string_literal: true

# Sidekiq: the same workload and counting as peer.py. Its own command requires this file to work.
require 'json'
require 'sidekiq'

EXPECTED = ENV.fetch('BENCH_EXPECTED', 0).to_i
OUT = ENV.fetch('BENCH_OUT', nil)
LIMIT_S = ENV.fetch('BENCH_LIMIT_S', 0).to_f
FAILS = ENV.key?('BENCH_FAILS')
HANGS = ENV.key?('BENCH_HANGS')
NUDGE = -1
CHUNK = 500
EVERY_S = 0.005
GRACE_S = 0.3

redis = { url: "redis://127.0.0.1:#{ENV.fetch('BENCH_PORT')}/0", driver: :hiredis }
Sidekiq.logger.level = Logger::FATAL # not the logging of failures is measured
Redis.silence_deprecations = true # nor is that of every BRPOP
Sidekiq.configure_client { |config| config.redis = { **redis, size: (ARGV[2] || 1).to_i } }
Sidekiq.configure_server do |config|
  config.redis = redis
  config.options[:poll_interval_average] = 0.1
end

def seconds = Process.clock_gettime(Process::CLOCK_MONOTONIC) # as Python's

def cpu_seconds = Process.clock_gettime(Process::CLOCK_PROCESS_CPUTIME_ID)

def body(number) = { 'n' => number, 'carrier' => 'UA', 'origin' => 'EWR', 'note' => 'x' * 60 }

# What was handled, and the end of it.
class Seen
  def initialize
    @lock = Mutex.new
    @numbers = []
    @starts = []
    @failed = {}
    @done = {}
  end

  # Note a message; whether this attempt is to fail.
  def note(number)
    at = seconds
    @lock.synchronize do
      @starts << at
      @numbers << number
      start unless @begun
      return @failed[number] = true if FAILS && !@failed[number]

      @done[number] = true
      finish if @done.size >= EXPECTED
    end
    false
  end

  private

  def start
    @begun = cpu_seconds
    return unless LIMIT_S.positive?

    Thread.new do
      sleep(LIMIT_S)
      @lock.synchronize { finish }
    end
  end

  # All is done, or time is over.
  def finish
    return if @ended

    @ended = cpu_seconds
    Thread.new do
      sleep(GRACE_S) # a duplicate would come now
      @lock.synchronize { report }
    end
  end

  def report
    worker_us = (@ended - @begun) / [1, EXPECTED - 1].max * 1e6
    report = { numbers: @numbers, starts: @starts, done: @done.size, worker_us: worker_us }
    File.write("#{OUT}.part", JSON.generate(report))
    File.rename("#{OUT}.part", OUT)
  end
end

SEEN = Seen.new

# The handler; what fails is put off by a second at least, and by up to nine more at random.
class Work
  include Sidekiq::Worker
  sidekiq_options queue: 'bench', retry: 3
  sidekiq_retry_in { 1 }

  def perform(message)
    number = message['n']
    return if number == NUDGE

    hang if HANGS
    raise 'the first attempt fails' if SEEN.note(number)
  end

  private

  def hang
    File.write(OUT, '')
    sleep
  end
end

def one(number) = Work.perform_async(body(number))

def bulk(count)
  (0...count).each_slice(CHUNK) do |numbers|
    Sidekiq::Client.push_bulk('class' => Work, 'args' => numbers.map { |n| [body(n)] })
  end
end

def slowly(numbers, every)
  due = seconds
  numbers.map do |number|
    due += every
    sleep([0, due - seconds].max) if every.positive?
    at = seconds
    one(number)
    at
  end
end

# Each of so many threads publishes again when its last message is stored.
def callers(count, threads)
  gate = Queue.new
  waits = Queue.new
  working = Array.new(threads) do
    Thread.new do
      gate.pop
      [1, count / threads].max.times do |number|
        at = seconds
        one(number)
        waits << (seconds - at)
      end
    end
  end
  started = seconds
  gate.close
  working.each(&:join)
  [started, Array.new(waits.size) { waits.pop }]
end

def publish(action, count, threads)
  one(0) if action == 'callers'
  started = seconds
  sent = []
  case action
  when 'callers' then started, sent = callers(count, threads.to_i)
  when 'bulk' then bulk(count)
  when 'nudge' then slowly([NUDGE] * count, 0)
  else sent = slowly(0...count, action == 'slow' ? EVERY_S : 0)
  end
  puts JSON.generate(took: seconds - started, sent: sent)
end

publish(ARGV[0], ARGV[1].to_i, ARGV[2]) if $PROGRAM_NAME == __FILE__
