import java.io.FileOutputStream;
import java.io.IOException;
import java.io.OutputStream;
import java.nio.charset.StandardCharsets;
import java.nio.file.Path;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.Semaphore;
import org.apache.rocketmq.client.apis.ClientConfiguration;
import org.apache.rocketmq.client.apis.ClientServiceProvider;
import org.apache.rocketmq.client.apis.message.Message;
import org.apache.rocketmq.client.apis.message.MessageId;
import org.apache.rocketmq.client.apis.producer.Producer;
import org.apache.rocketmq.client.apis.producer.SendReceipt;

/**
 * A checkout that publishes orders: `Orders ADDRESS TOPIC COUNT FOLDER`. Every tenth order fails
 * twice and every 400th always, by what its body says. The history in the folder has a line before
 * each send and one after it, as tests/model/checker reads them.
 */
public final class Orders {
    private static final int AT_ONCE = 64;
    private static OutputStream history;

    public static void main(String[] arguments) throws Exception {
        String topic = arguments[1];
        int count = Integer.parseInt(arguments[2]);
        long pid = ProcessHandle.current().pid();
        Path file = Path.of(arguments[3], "history-" + pid + ".jsonl");
        history = new FileOutputStream(file.toFile(), true);
        ClientConfiguration where = ClientConfiguration.newBuilder().setEndpoints(arguments[0]).build();
        ClientServiceProvider rocketmq = ClientServiceProvider.loadService();
        Producer producer = rocketmq.newProducerBuilder()
            .setClientConfiguration(where).setTopics(topic).build();
        Semaphore room = new Semaphore(AT_ONCE);
        for (int number = 1; number <= count; number++) {
            int fails = number % 400 == 7 ? 99 : number % 10 == 3 ? 2 : 0;
            String token = "ct-" + pid + "-" + number;
            String body = "{\"order\": " + number + ", \"fails\": " + fails + "}";
            Message message = rocketmq.newMessageBuilder()
                .setTopic(topic)
                .setBody(body.getBytes(StandardCharsets.UTF_8))
                .addProperty("checker", token)
                .build();
            room.acquire();
            note("invoke", number, "\"op\":\"publish\",\"topic\":\"" + topic + "\",\"token\":\"" + token
                + "\",\"tier_wanted\":\"memory\"");
            int sent = number;
            CompletableFuture<SendReceipt> sending = producer.sendAsync(message);
            sending.whenComplete((receipt, error) -> {
                ended(sent, error == null ? receipt.getMessageId() : null);
                room.release();
            });
        }
        room.acquire(AT_ONCE);
        Runtime.getRuntime().halt(0);
    }

    private static void ended(int number, MessageId id) {
        if (id == null) {
            note("info", number, "\"error\":\"ClientException\"");
        } else {
            note("ok", number, "\"id\":\"" + id + "\",\"duplicate\":false,\"tier_confirmed\":\"memory\"");
        }
    }

    private static void note(String type, int number, String fields) {
        long now = System.currentTimeMillis() * 1_000_000;
        String line = "{\"type\":\"" + type + "\",\"n\":" + number + "," + fields
            + ",\"wall_ns\":" + now + ",\"mono_ns\":" + System.nanoTime() + "}\n";
        try {
            history.write(line.getBytes(StandardCharsets.UTF_8));
        } catch (IOException error) {
            throw new IllegalStateException(error);
        }
    }
}
