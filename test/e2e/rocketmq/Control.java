/*
 * Control.java: what the story asks of RocketMQ, line by line.
 *
 *     java -cp … Control NAME_SERVER BROKER
 *
 * A command is a line of fields separated by tabs, and so is its answer, whose first field is
 * "ok" or "error":
 *
 *     topic NAME QUEUES            makes a topic
 *     send TOPIC QUEUE KEYS BODY   a new message, to that queue; answers msgId, offsetMsgId
 *     waiting GROUP                how many messages the group has not acknowledged
 *     read TOPIC                   all that is in it: keys, body, reconsumeTimes, msgId of each
 */

import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.Collection;
import java.util.List;
import org.apache.rocketmq.client.consumer.DefaultLitePullConsumer;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.producer.SendResult;
import org.apache.rocketmq.client.producer.SendStatus;
import org.apache.rocketmq.common.TopicConfig;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.common.message.MessageQueue;
import org.apache.rocketmq.tools.admin.DefaultMQAdminExt;

public class Control {

    final DefaultMQAdminExt admin = new DefaultMQAdminExt();
    final DefaultMQProducer producer = new DefaultMQProducer("story");
    final String nameServer;
    final String broker;

    Control(String nameServer, String broker) throws Exception {
        this.nameServer = nameServer;
        this.broker = broker;
        admin.setNamesrvAddr(nameServer);
        admin.start();
        producer.setNamesrvAddr(nameServer);
        producer.start();
    }

    String topic(String name, int queues) throws Exception {
        admin.createAndUpdateTopicConfig(broker, new TopicConfig(name, queues, queues, 6));
        return "";
    }

    String send(String topic, int queue, String keys, String body) throws Exception {
        Message message = new Message(topic, null, keys, body.getBytes(StandardCharsets.UTF_8));
        SendResult result = producer.send(message,
            (queues, sent, wanted) -> queues.get((Integer) wanted), queue);
        if (result.getSendStatus() != SendStatus.SEND_OK) {
            throw new IllegalStateException(result.toString());
        }
        return result.getMsgId() + "\t" + result.getOffsetMsgId();
    }

    String waiting(String group) throws Exception {
        return "" + admin.examineConsumeStats(group).computeTotalDiff();
    }

    String read(String topic) throws Exception {
        long wanted = admin.examineTopicStats(topic).getOffsetTable().values().stream()
            .mapToLong(offsets -> offsets.getMaxOffset() - offsets.getMinOffset()).sum();
        DefaultLitePullConsumer reader = new DefaultLitePullConsumer("reader");
        reader.setNamesrvAddr(nameServer);
        reader.setAutoCommit(false);
        reader.start();
        try {
            Collection<MessageQueue> queues = reader.fetchMessageQueues(topic);
            reader.assign(queues);
            for (MessageQueue queue : queues) {
                reader.seekToBegin(queue);
            }
            List<String> found = new ArrayList<>();
            while (found.size() < wanted) {
                for (MessageExt message : reader.poll(1000)) {
                    found.add(String.join("\t", "" + message.getKeys(),
                        new String(message.getBody(), StandardCharsets.UTF_8),
                        "" + message.getReconsumeTimes(), message.getMsgId()));
                }
            }
            return String.join("\t", found);
        } finally {
            reader.shutdown();
        }
    }

    String answer(String[] command) throws Exception {
        switch (command[0]) {
            case "topic":
                return topic(command[1], Integer.parseInt(command[2]));
            case "send":
                return send(command[1], Integer.parseInt(command[2]), command[3], command[4]);
            case "waiting":
                return waiting(command[1]);
            case "read":
                return read(command[1]);
            default:
                throw new IllegalArgumentException(command[0]);
        }
    }

    public static void main(String[] arguments) throws Exception {
        Control control = new Control(arguments[0], arguments[1]);
        BufferedReader commands = new BufferedReader(
            new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = commands.readLine(); line != null; line = commands.readLine()) {
            String answer;
            try {
                answer = "ok\t" + control.answer(line.split("\t"));
            } catch (Exception error) {
                answer = "error\t" + error.toString().replaceAll("\\s+", " ");
            }
            System.out.println("> " + answer);
        }
        System.exit(0);
    }
}
