/*
 * RefundConsumer.java: takes refunds from a RocketMQ topic and has them paid by a channel, once
 * each.
 *
 *     java -cp … RefundConsumer NAME_SERVER TOPIC GROUP CHANNEL_HOST:PORT
 *
 * Run as many as you like, and kill any of them at any time.  DATABASE_URL is the database, as
 * JDBC names it.  rocketmq.md beside this file explains what is done and why; what you would
 * replace is the channel, and the application's own row in paid().
 *
 * The property KEYS of a message is the key of the action, its body the parameters in JSON.
 *
 * It needs Java 11, rocketmq-client and the PostgreSQL JDBC driver.  The channel: POST /refunds
 * pays, under the key that it is sent, and GET /refunds/KEY finds what was paid.
 */

import java.net.URI;
import java.net.URLEncoder;
import java.net.http.HttpClient;
import java.net.http.HttpRequest;
import java.net.http.HttpResponse;
import java.nio.ByteBuffer;
import java.nio.charset.CharacterCodingException;
import java.nio.charset.StandardCharsets;
import java.sql.Connection;
import java.sql.DriverManager;
import java.sql.PreparedStatement;
import java.sql.ResultSet;
import java.sql.SQLException;
import java.time.Duration;
import java.util.List;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.Future;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.TimeoutException;
import java.util.concurrent.locks.LockSupport;
import java.util.regex.Pattern;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyContext;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerConcurrently;
import org.apache.rocketmq.client.exception.MQClientException;
import org.apache.rocketmq.common.consumer.ConsumeFromWhere;
import org.apache.rocketmq.common.message.MessageExt;

public class RefundConsumer {

    static final int LEASE = setting("REFUND_LEASE", 30);       // seconds, the contract's or less
    static final int CALL = setting("REFUND_CALL", LEASE / 2);  // seconds for a call, less still
    static final int CONSUME_TIMEOUT = setting("REFUND_CONSUME_TIMEOUT", 15);   // minutes
    static final int THREADS = 4;
    static final String OWNER = "refund-consumer:" + ProcessHandle.current().pid();

    // seconds of the delay levels 1, 2, … as the broker has them unless it was told otherwise
    static final int[] DELAYS = {1, 5, 10, 30, 60, 120, 180, 240, 300, 360, 420, 480, 540, 600,
        1200, 1800, 3600, 7200};
    static final int DEAD_LETTER = -1;          // what the broker is told instead of a level

    // what will never be right, however often it comes: outcomes, and SQLSTATEs of a claim
    static final Pattern HOPELESS = Pattern.compile(
        "conflict|review|expired|22(?!P03).*|54.*|ID007");

    final HttpClient http = HttpClient.newBuilder().version(HttpClient.Version.HTTP_1_1).build();
    final ThreadLocal<Connection> connections = new ThreadLocal<>();
    final String channel;

    RefundConsumer(String channel) {
        this.channel = channel;
    }

    static int setting(String name, int otherwise) {
        String value = System.getenv(name);
        return value == null ? otherwise : Integer.parseInt(value);
    }

    // ---- what the broker is answered ----

    // doc: answer
    /** Called by several threads, each with one message: the batch size is 1. */
    ConsumeConcurrentlyStatus consume(List<MessageExt> messages,
            ConsumeConcurrentlyContext context) {
        MessageExt message = messages.get(0);
        Verdict verdict = handle(message);
        int level = 0;
        switch (verdict.outcome) {
            case "succeeded":
            case "rejected":
                break;
            case "busy":                        // at retry_at it is worth asking again
                level = levelOf(verdict.seconds);
                break;
            default:                            // later and later
                level = HOPELESS.matcher(verdict.outcome).matches() ? DEAD_LETTER
                    : Math.min(1 + message.getReconsumeTimes(), DELAYS.length);
        }
        System.out.println(String.join(" ", "" + message.getKeys(), message.getMsgId(),
            place(message), "" + message.getReconsumeTimes(), verdict.outcome));
        if (level == 0) {
            return ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
        }
        context.setDelayLevelWhenNextConsume(level);
        return ConsumeConcurrentlyStatus.RECONSUME_LATER;
    }

    /** Where the broker keeps it: another place for each time that it was to come again. */
    static String place(MessageExt message) {
        return message.getBrokerName() + "@" + message.getCommitLogOffset();
    }

    static int levelOf(double seconds) {
        int level = 1;
        while (level < DELAYS.length && DELAYS[level - 1] < seconds) {
            level++;
        }
        return level;
    }
    // doc: end

    // ---- one message ----

    /** What idem_claim or idem_absent said, or what became of it since. */
    static class Verdict {
        final long askedAt;     // nanoseconds, before the question was sent
        final String key;
        final String outcome;   // an SQLSTATE, if there is no verdict
        final long generation;
        final String params;    // what is on record, not what the message says
        final double seconds;   // with busy: until it is worth asking again

        Verdict(long askedAt, String key, String outcome, long generation, String params,
                double seconds) {
            this.askedAt = askedAt;
            this.key = key;
            this.outcome = outcome;
            this.generation = generation;
            this.params = params;
            this.seconds = seconds;
        }

        Verdict became(String newOutcome) {
            return new Verdict(askedAt, key, newOutcome, 0, null, 1);
        }
    }

    Verdict handle(MessageExt message) {
        Verdict verdict = null;
        try {
            verdict = claim(message);           // its COMMIT was answered, so a grant is one
            if (verdict.outcome.equals("verify")) {
                verdict = verify(verdict);
            }
            if (verdict.outcome.equals("execute") || verdict.outcome.equals("repeat")) {
                verdict = act(verdict);
            }
            return verdict;
        } catch (SQLException error) {
            disconnect();
            System.err.println(error);
            if (verdict != null) {              // of a report: the message is not to blame
                return verdict.became("unreported");
            }
            String state = error.getSQLState();
            return new Verdict(0, null, state == null ? "08000" : state, 0, null, 0);
        } catch (RuntimeException | Error error) {
            disconnect();                       // what it may have begun must not go on in the next
            throw error;                        // to the client, which has the message come later
        }
    }

    /** An attempt may have paid: ask, and pay only if it is certain that none has. */
    Verdict verify(Verdict verdict) throws SQLException {
        HttpResponse<String> response = call(request("/refunds/"
            + URLEncoder.encode(name(verdict.key), StandardCharsets.UTF_8)).GET());
        if (response == null || response.statusCode() != 200 && response.statusCode() != 404) {
            return report("idem_mark_unknown", verdict, response);
        }
        if (response.statusCode() == 200) {
            return paid(verdict, response);
        }
        long askedAt = System.nanoTime();
        return verdict(askedAt, verdict.key,
            "SELECT outcome, generation, params, retry_at FROM idem_absent(?, ?)",
            verdict.key, verdict.generation);
    }

    Verdict act(Verdict verdict) throws SQLException {
        if (System.nanoTime() - verdict.askedAt > (LEASE - CALL) * 1e9) {
            return report("idem_release", verdict, null);   // too late to call, so none was made
        }
        HttpResponse<String> response = call(request("/refunds")
            .header("Idempotency-Key", name(verdict.key))
            .POST(HttpRequest.BodyPublishers.ofString(verdict.params)));
        int status = response == null ? 0 : response.statusCode();
        if (status == 201) {
            return paid(verdict, response);
        }
        if (status == 429 || status == 503) {   // the channel promises that it did nothing
            return report("idem_release", verdict, response);
        }
        if (status == 403 && verdict.outcome.equals("execute")) {   // nothing was paid, nor will be
            report("idem_reject", verdict, response);
            return verdict.became("rejected");
        }
        if (status == 400 || status == 403 || status == 422) {  // but an earlier call may have paid
            report("idem_escalate", verdict, response);
            return verdict.became("review");
        }
        return report("idem_mark_unknown", verdict, response);
    }

    // ---- the channel ----

    /**
     * The key, in characters that a header can carry: this client sends a question mark for others.
     * As worker.py has it, and the same for both requests.
     */
    static String name(String key) {
        return URLEncoder.encode(key, StandardCharsets.UTF_8).replace("+", "%20")
            .replace("*", "%2A").replace("%7E", "~").replace("%2F", "/");
    }

    HttpRequest.Builder request(String path) {
        return HttpRequest.newBuilder(URI.create("http://" + channel + path))
            .timeout(Duration.ofSeconds(CALL));
    }

    /** Null if nobody knows what became of it.  This client sends a POST only once. */
    HttpResponse<String> call(HttpRequest.Builder request) {
        // the time-out of a request ends with the first line of the answer
        Future<HttpResponse<String>> answer = http.sendAsync(request.build(),
            HttpResponse.BodyHandlers.ofString());
        try {
            return answer.get(CALL, TimeUnit.SECONDS);
        } catch (ExecutionException | TimeoutException error) {
            answer.cancel(true);
            return null;
        } catch (InterruptedException error) {
            Thread.currentThread().interrupt();
            return null;
        }
    }

    // ---- the database ----

    // doc: claim
    Verdict claim(MessageExt message) throws SQLException {
        long askedAt = System.nanoTime();
        // not msg.getBornTimestamp(): who sends the event again stamps it anew
        return verdict(askedAt, message.getKeys(),
            "SELECT outcome, generation, params, retry_at"
            + " FROM idem_claim(?, ?::jsonb, owner => ?, lease => make_interval(secs => ?),"
            + " transport => jsonb_build_object('msgId', ?::text, 'place', ?::text,"
            + " 'reconsumeTimes', ?::integer))",
            message.getKeys(), text(message.getBody()), OWNER, LEASE,
            message.getMsgId(), place(message), message.getReconsumeTimes());
    }
    // doc: end

    /** What is no text is refused, not mended: it would be another one then. */
    static String text(byte[] body) throws SQLException {
        try {
            return StandardCharsets.UTF_8.newDecoder()
                .decode(ByteBuffer.wrap(body == null ? new byte[0] : body)).toString();
        } catch (CharacterCodingException error) {
            throw new SQLException("the body is not in UTF-8", "22021", error);
        }
    }

    Verdict verdict(long askedAt, String key, String call, Object... arguments)
            throws SQLException {
        String sql = "SELECT outcome, generation, params,"
            + " coalesce(extract(epoch FROM retry_at - clock_timestamp()), 0)::float8 AS seconds"
            + " FROM (" + call + ") AS v";
        try (PreparedStatement statement = prepare(sql, arguments);
             ResultSet rows = statement.executeQuery()) {
            rows.next();
            return new Verdict(askedAt, key, rows.getString("outcome"), rows.getLong("generation"),
                rows.getString("params"), rows.getDouble("seconds"));
        }
    }

    // doc: paid
    /** The action is complete and the application has its row, or neither. */
    Verdict paid(Verdict verdict, HttpResponse<String> response) throws SQLException {
        String answer = response.body();
        try {
            say(verdict, () -> {
                Connection connection = connection();
                connection.setAutoCommit(false);
                execute("SELECT idem_complete(?, ?, ?::jsonb, ?::jsonb->>'reference')",
                    verdict.key, verdict.generation, answer, answer);
                execute("INSERT INTO refund_entry (key, amount, reference)"
                    + " VALUES (?, (?::jsonb->>'amount')::numeric, ?::jsonb->>'reference')"
                    + " ON CONFLICT DO NOTHING", verdict.key, verdict.params, answer);
                connection.commit();
                connection.setAutoCommit(true);
            });
        } catch (SQLException error) {
            if (!String.valueOf(error.getSQLState()).matches("22.*|23502")) {
                throw error;
            }
            return report("idem_mark_unknown", verdict, response);  // no answer that can be read
        }
        return verdict.became("succeeded");
    }
    // doc: end

    /** Says what else happened; the message is to come again. */
    Verdict report(String function, Verdict verdict, HttpResponse<String> response)
            throws SQLException {
        say(verdict, () -> execute("SELECT " + function + "(?, ?, jsonb_build_object("
            + "'status', ?::integer, 'body', ?::text))", verdict.key, verdict.generation,
            response == null ? null : response.statusCode(),
            response == null ? null : response.body().replace("\0", "")));
        return verdict.became("busy");
    }

    interface Report {
        void run() throws SQLException;
    }

    /** Saying it again is no error: it is said until COMMIT is answered, or the lease ends. */
    void say(Verdict verdict, Report report) throws SQLException {
        while (true) {
            try {
                report.run();
                return;
            } catch (SQLException error) {
                disconnect();
                if (!isAway(error) || System.nanoTime() - verdict.askedAt > LEASE * 1e9) {
                    throw error;
                }
                LockSupport.parkNanos(500_000_000);
            }
        }
    }

    /** The server is not there, or another transaction was in the way. */
    static boolean isAway(SQLException error) {
        String state = error.getSQLState();
        return state == null || state.matches("(08|53|57P|40).*|25006|55P03");
    }

    void execute(String sql, Object... arguments) throws SQLException {
        try (PreparedStatement statement = prepare(sql, arguments)) {
            statement.execute();
        }
    }

    PreparedStatement prepare(String sql, Object... arguments) throws SQLException {
        PreparedStatement statement = connection().prepareStatement(sql);
        for (int i = 0; i < arguments.length; i++) {
            statement.setObject(i + 1, arguments[i]);
        }
        return statement;
    }

    /** One for each thread, with autocommit, made again after any error. */
    Connection connection() throws SQLException {
        Connection connection = connections.get();
        if (connection == null) {
            connection = DriverManager.getConnection(System.getenv("DATABASE_URL"));
            connections.set(connection);
        }
        return connection;
    }

    void disconnect() {
        Connection connection = connections.get();
        connections.remove();
        try {
            if (connection != null) {
                connection.close();             // what was open in it is rolled back
            }
        } catch (SQLException error) {
            // it was broken
        }
    }

    // doc: start
    public static void main(String[] arguments) throws MQClientException {
        DefaultMQPushConsumer consumer = new DefaultMQPushConsumer(arguments[2]);
        consumer.setNamesrvAddr(arguments[0]);
        consumer.subscribe(arguments[1], "*");
        // a new group is otherwise not told what was sent before it
        consumer.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
        // 16 times otherwise, after which the broker makes a dead letter of what is merely busy
        consumer.setMaxReconsumeTimes(10000);
        consumer.setConsumeMessageBatchMaxSize(1);
        consumer.setConsumeTimeout(CONSUME_TIMEOUT);
        consumer.setConsumeThreadMin(THREADS);
        consumer.setConsumeThreadMax(THREADS);
        RefundConsumer refunds = new RefundConsumer(arguments[3]);
        consumer.registerMessageListener((MessageListenerConcurrently) refunds::consume);
        consumer.start();
    }
    // doc: end
}
