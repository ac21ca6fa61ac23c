import java.nio.charset.StandardCharsets;
import java.util.Map;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;
import org.apache.rocketmq.client.apis.ClientConfiguration;
import org.apache.rocketmq.client.apis.ClientServiceProvider;
import org.apache.rocketmq.client.apis.consumer.ConsumeResult;
import org.apache.rocketmq.client.apis.consumer.FilterExpression;
import org.apache.rocketmq.client.apis.consumer.PushConsumer;
import org.apache.rocketmq.client.apis.message.Message;
import org.apache.rocketmq.client.apis.message.MessageView;
import org.apache.rocketmq.client.apis.producer.Producer;

/** Publishes an order and consumes it with RocketMQ's own Java client. */
public final class RocketmqClient {
    private static final CountDownLatch DONE = new CountDownLatch(1);

    public static void main(String[] arguments) throws Exception {
        String address = arguments.length > 0 ? arguments[0] : "127.0.0.1:8081";
        ClientConfiguration where = ClientConfiguration.newBuilder().setEndpoints(address).build();
        ClientServiceProvider rocketmq = ClientServiceProvider.loadService();
        PushConsumer consumer = rocketmq.newPushConsumerBuilder()
            .setClientConfiguration(where)
            .setConsumerGroup("billing")
            .setSubscriptionExpressions(Map.of("orders", FilterExpression.SUB_ALL))
            .setMessageListener(RocketmqClient::bill)
            .build();
        Producer producer = rocketmq.newProducerBuilder()
            .setClientConfiguration(where)
            .setTopics("orders")
            .build();
        try (consumer; producer) {
            Message order = rocketmq.newMessageBuilder()
                .setTopic("orders")
                .setTag("book")
                .setBody("{\"order\": 1}".getBytes(StandardCharsets.UTF_8))
                .build();
            System.out.println("sent " + producer.send(order).getMessageId());
            DONE.await(30, TimeUnit.SECONDS);
        }
    }

    /** Fails once, so that the message comes again. */
    private static ConsumeResult bill(MessageView message) {
        String body = StandardCharsets.UTF_8.decode(message.getBody()).toString();
        System.out.println("attempt " + message.getDeliveryAttempt() + ": " + body);
        if (message.getDeliveryAttempt() == 1) {
            return ConsumeResult.FAILURE;
        }
        DONE.countDown();
        return ConsumeResult.SUCCESS;
    }
}
