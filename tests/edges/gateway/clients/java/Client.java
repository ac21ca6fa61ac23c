import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.Collection;
import java.util.List;
import java.util.Map;
import java.util.function.Consumer;
import java.util.function.Predicate;
import java.util.stream.Collectors;
import org.apache.rocketmq.client.apis.ClientConfiguration;
import org.apache.rocketmq.client.apis.ClientException;
import org.apache.rocketmq.client.apis.ClientServiceProvider;
import org.apache.rocketmq.client.apis.consumer.ConsumeResult;
import org.apache.rocketmq.client.apis.consumer.FilterExpression;
import org.apache.rocketmq.client.apis.consumer.FilterExpressionType;
import org.apache.rocketmq.client.apis.consumer.SimpleConsumer;
import org.apache.rocketmq.client.apis.message.Message;
import org.apache.rocketmq.client.apis.message.MessageBuilder;
import org.apache.rocketmq.client.apis.message.MessageView;
import org.apache.rocketmq.client.apis.producer.Producer;
import org.apache.rocketmq.client.apis.producer.SendReceipt;
import org.apache.rocketmq.client.apis.producer.Transaction;
import org.apache.rocketmq.client.apis.producer.TransactionResolution;

/**
 * What the official Java client does with a gateway: `Client ADDRESS PREFIX` prints JSON lines of
 * what it saw. Topics and groups begin with the prefix and exist already. It ends with its input,
 * so that no acknowledgement is cut off.
 */
public final class Client {
    private static final ClientServiceProvider PROVIDER = ClientServiceProvider.loadService();
    private static ClientConfiguration configuration;
    private static String prefix;

    public static void main(String[] arguments) throws Exception {
        configuration = ClientConfiguration.newBuilder().setEndpoints(arguments[0]).build();
        prefix = arguments[1];
        push("billing", "orders", "book || film", m ->
            body(m).equals("bad") || (body(m).equals("flaky") && m.getDeliveryAttempt() == 1));
        push("ledger", "entries", "*", m ->
            body(m).equals("2") || (body(m).equals("1") && m.getDeliveryAttempt() < 3));
        start(() -> take("late", "later", 1));
        start(() -> take("paid", "payments", 2));
        start(Client::change);
        produce();
        System.in.readAllBytes();
        Runtime.getRuntime().halt(0);
    }

    private static void produce() throws ClientException {
        String[] topics = List.of("orders", "entries", "later", "payments", "plain").stream()
            .map(topic -> prefix + topic).toArray(String[]::new);
        Producer producer = PROVIDER.newProducerBuilder()
            .setClientConfiguration(configuration).setTopics(topics)
            .setTransactionChecker(message -> {
                say("checked", Map.of("id", message.getMessageId(), "body", body(message)));
                return TransactionResolution.COMMIT;
            }).build();
        begin(producer, "left");
        begin(producer, "committed").commit();
        begin(producer, "rolled back").rollback();
        long now = System.currentTimeMillis();
        send(producer, "later", "soon", m -> m.setDeliveryTimestamp(now + 1500));
        SendReceipt never = send(producer, "later", "never", m -> m.setDeliveryTimestamp(now + 3000));
        String recalled = producer.recallMessage(prefix + "later", never.getRecallHandle())
            .getMessageId().toString();
        say("recalled", Map.of("id", recalled));
        for (String one : List.of("1", "2", "3", "other")) {
            String account = one.equals("other") ? "account-2" : "account-1";
            send(producer, "entries", one, m -> m.setMessageGroup(account));
        }
        send(producer, "orders", "good", m ->
            m.setTag("book").setKeys("k1", "k2").addProperty("colour", "red"));
        send(producer, "orders", "flaky", m -> m.setTag("film"));
        send(producer, "orders", "bad", m -> m.setTag("book"));
        send(producer, "orders", "filtered", m -> m.setTag("song"));
        send(producer, "plain", "changed", m -> { });
    }

    private static Message message(String topic, String body, Consumer<MessageBuilder> more) {
        MessageBuilder builder = PROVIDER.newMessageBuilder()
            .setTopic(prefix + topic).setBody(body.getBytes(StandardCharsets.UTF_8));
        more.accept(builder);
        return builder.build();
    }

    private static SendReceipt send(
            Producer producer, String topic, String body, Consumer<MessageBuilder> more)
            throws ClientException {
        SendReceipt receipt = producer.send(message(topic, body, more));
        say("sent", Map.of("id", receipt.getMessageId(), "body", body));
        return receipt;
    }

    private static Transaction begin(Producer producer, String body) throws ClientException {
        Transaction transaction = producer.beginTransaction();
        SendReceipt half = producer.send(message("payments", body, m -> { }), transaction);
        say("sent", Map.of("id", half.getMessageId(), "body", body));
        return transaction;
    }

    private static void push(String group, String topic, String tags, Predicate<MessageView> fails)
            throws ClientException {
        PROVIDER.newPushConsumerBuilder()
            .setClientConfiguration(configuration)
            .setConsumerGroup(prefix + group)
            .setSubscriptionExpressions(subscribed(topic, tags))
            .setMessageListener(message -> {
                saw(group, message);
                return fails.test(message) ? ConsumeResult.FAILURE : ConsumeResult.SUCCESS;
            }).build();
    }

    private static SimpleConsumer simple(String group, String topic) throws ClientException {
        return PROVIDER.newSimpleConsumerBuilder()
            .setClientConfiguration(configuration)
            .setConsumerGroup(prefix + group)
            .setSubscriptionExpressions(subscribed(topic, "*"))
            .setAwaitDuration(Duration.ofSeconds(15))
            .build();
    }

    private static void take(String group, String topic, int count) throws Exception {
        SimpleConsumer consumer = simple(group, topic);
        for (int taken = 0; taken < count; taken++) {
            consumer.ack(receive(consumer, group));
        }
    }

    private static void change() throws Exception {
        SimpleConsumer consumer = simple("changing", "plain");
        consumer.changeInvisibleDuration(receive(consumer, "changing"), Duration.ofSeconds(1));
        consumer.ack(receive(consumer, "changing"));
    }

    private static MessageView receive(SimpleConsumer consumer, String group) throws Exception {
        while (true) {
            for (MessageView message : consumer.receive(1, Duration.ofSeconds(20))) {
                saw(group, message);
                return message;
            }
        }
    }

    private static Map<String, FilterExpression> subscribed(String topic, String tags) {
        return Map.of(prefix + topic, new FilterExpression(tags, FilterExpressionType.TAG));
    }

    private static String body(MessageView message) {
        return StandardCharsets.UTF_8.decode(message.getBody()).toString();
    }

    private static void saw(String by, MessageView message) {
        say("seen", Map.of(
            "by", by, "id", message.getMessageId(), "body", body(message),
            "tag", message.getTag().orElse(""), "keys", message.getKeys(),
            "properties", message.getProperties(), "attempt", message.getDeliveryAttempt(),
            "message_group", message.getMessageGroup().orElse(""),
            "due", message.getDeliveryTimestamp().orElse(0L) / 1000.0));
    }

    private static void say(String event, Map<String, Object> fields) {
        String rest = fields.entrySet().stream()
            .map(field -> "," + json(field.getKey()) + ":" + json(field.getValue()))
            .collect(Collectors.joining());
        double at = System.currentTimeMillis() / 1000.0;
        System.out.println("{\"event\":" + json(event) + ",\"at\":" + at + rest + "}");
    }

    /** Enough for what is said here: no string has a quote or a backslash. */
    private static String json(Object value) {
        if (value instanceof Map<?, ?> map) {
            return map.entrySet().stream().map(one -> json(one.getKey()) + ":" + json(one.getValue()))
                .collect(Collectors.joining(",", "{", "}"));
        }
        if (value instanceof Collection<?> all) {
            return all.stream().map(Client::json)
                .collect(Collectors.joining(",", "[", "]"));
        }
        return value instanceof Number ? value.toString() : '"' + value.toString() + '"';
    }

    private interface Work {
        void run() throws Exception;
    }

    private static void start(Work work) {
        new Thread(() -> {
            try {
                work.run();
            } catch (Exception error) {
                error.printStackTrace();
                Runtime.getRuntime().halt(1);
            }
        }).start();
    }
}
