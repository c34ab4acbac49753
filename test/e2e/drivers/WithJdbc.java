/*
 * WithJdbc.java: the driver program for the JDBC driver; doc/drivers/jdbc.md shows parts of it.
 * The commands are those of protocol.py.
 */

import java.io.BufferedReader;
import java.io.IOException;
import java.io.InputStreamReader;
import java.nio.charset.StandardCharsets;
import java.sql.Array;
import java.sql.Connection;
import java.sql.DriverManager;
import java.sql.PreparedStatement;
import java.sql.ResultSet;
import java.sql.ResultSetMetaData;
import java.sql.SQLException;
import java.sql.Timestamp;
import java.sql.Types;
import java.time.OffsetDateTime;
import java.util.ArrayList;
import java.util.List;
import java.util.SortedSet;
import java.util.TreeSet;
import org.postgresql.util.PGInterval;
import org.postgresql.util.PGobject;

public class WithJdbc {

    /** A row as the protocol shows it. */
    static String row(ResultSet rows) throws SQLException {
        ResultSetMetaData columns = rows.getMetaData();
        List<String> fields = new ArrayList<>();
        for (int i = 1; i <= columns.getColumnCount(); i++) {
            Object value = rows.getObject(i);
            if (value instanceof Timestamp) {
                value = ((Timestamp) value).getTime();
            } else if (value instanceof Array) {
                value = String.join(",", (String[]) ((Array) value).getArray());
            }
            fields.add(columns.getColumnLabel(i) + "=" + (value == null ? "\\N" : value));
        }
        return String.join("\t", fields);
    }

    // doc: claim
    static String claim(Connection connection, String key, String params,
            OffsetDateTime occurredAt, PGInterval lease) throws SQLException {
        // with autocommit, which is JDBC's default, it has committed when the answer is here
        try (PreparedStatement claim = connection.prepareStatement(
                "SELECT outcome, generation, attempt, lease_until, params, differs"
                + " FROM idem_claim(?, ?::jsonb, occurred_at => ?, lease => ?)")) {
            claim.setString(1, key);
            claim.setString(2, params);
            claim.setObject(3, occurredAt, Types.TIMESTAMP_WITH_TIMEZONE);
            claim.setObject(4, lease, Types.OTHER);
            ResultSet verdict = claim.executeQuery();
            verdict.next();
            return row(verdict);        // getString("outcome"), getLong("generation"), …
        }
    }
    // doc: end

    // doc: complete
    interface Work<T> {
        T run() throws SQLException;
    }

    static <T> T transaction(Connection connection, Work<T> work) throws SQLException {
        connection.setAutoCommit(false);
        try {
            T value = work.run();
            connection.commit();
            return value;
        } catch (SQLException | RuntimeException | Error failure) {
            connection.rollback();      // whatever it was: setAutoCommit(true) would commit
            throw failure;
        } finally {
            connection.setAutoCommit(true);
        }
    }

    static void complete(Connection connection, String key, Long generation, String result,
            String reference, long amount) throws SQLException {
        transaction(connection, () -> {
            try (PreparedStatement complete = connection.prepareStatement(
                    "SELECT idem_complete(?, ?, ?::jsonb, ?)");
                 // the answer to COMMIT may be lost, and all of this be said again
                 PreparedStatement insert = connection.prepareStatement(
                    "INSERT INTO refund (key, amount, reference) VALUES (?, ?, ?)"
                    + " ON CONFLICT DO NOTHING")) {
                complete.setString(1, key);
                complete.setObject(2, generation, Types.BIGINT);
                complete.setString(3, result);
                complete.setString(4, reference);
                complete.execute();
                insert.setString(1, key);
                insert.setLong(2, amount);
                insert.setString(3, reference);
                insert.execute();
            }
            return null;
        });
    }
    // doc: end

    // doc: error
    static String tryComplete(Connection connection, String key, Long generation, String result,
            String reference, long amount) throws SQLException {
        try {
            complete(connection, key, generation, result, reference, amount);
        } catch (SQLException error) {
            if (!"ID002".equals(error.getSQLState())) {
                throw error;
            }
            return "replaced";          // by a newer owner; the row of refund is rolled back
        }
        return "done";
    }
    // doc: end

    static void reject(Connection connection, String key, Long generation, String error)
            throws SQLException {
        try (PreparedStatement reject = connection.prepareStatement(
                "SELECT idem_reject(?, ?, ?::jsonb)")) {
            reject.setString(1, key);
            reject.setObject(2, generation, Types.BIGINT);
            reject.setString(3, error);
            reject.execute();
        }
    }

    // doc: unknown
    static void markUnknown(Connection connection, String key, Long generation, String detail,
            PGInterval retryAfter) throws SQLException {
        try (PreparedStatement unknown = connection.prepareStatement(
                "SELECT idem_mark_unknown(?, ?, ?::jsonb, ?)")) {
            unknown.setString(1, key);
            unknown.setObject(2, generation, Types.BIGINT);
            unknown.setString(3, detail);
            unknown.setObject(4, retryAfter, Types.OTHER);  // new PGInterval("10 minutes")
            unknown.execute();
        }
    }
    // doc: end

    static String status(Connection connection, String key) throws SQLException {
        try (PreparedStatement status = connection.prepareStatement(
                "SELECT state, generation, result, error, channel_ref FROM idem_status(?)")) {
            status.setString(1, key);
            ResultSet rows = status.executeQuery();
            rows.next();
            return row(rows);
        }
    }

    // doc: once
    static boolean once(Connection connection, String key, String params, long amount)
            throws SQLException {
        return transaction(connection, () -> onceTrap(connection, key, params, amount));
    }
    // doc: end

    // doc: trap
    static boolean onceTrap(Connection connection, String key, String params, long amount)
            throws SQLException {
        try (PreparedStatement once = connection.prepareStatement("SELECT idem_once(?, ?::jsonb)");
             PreparedStatement insert = connection.prepareStatement(
                "INSERT INTO credit (key, amount) VALUES (?, ?)")) {
            once.setString(1, key);
            once.setString(2, params);
            ResultSet rows = once.executeQuery();
            rows.next();
            boolean first = rows.getBoolean(1);
            // with autocommit it is on record as done already: a failure from here on loses the
            // credit
            if (first) {
                insert.setString(1, key);
                insert.setLong(2, amount);
                insert.execute();
            }
            return first;
        }
    }
    // doc: end

    // doc: consume
    static String consume(Connection connection, String[] keys, String[] payloads,
            OffsetDateTime[] occurredAt) throws SQLException {
        return transaction(connection, () -> {
            List<String> outcomes = new ArrayList<>();
            try (PreparedStatement consume = connection.prepareStatement(
                    "SELECT key, (payload->>'pieces')::bigint AS pieces, outcome"
                    + " FROM idem_consume_batch(?, ?, ?)");
                 PreparedStatement insert = connection.prepareStatement(
                    "INSERT INTO stock (key, pieces) VALUES (?, ?)")) {
                consume.setArray(1, connection.createArrayOf("text", keys));
                consume.setArray(2, connection.createArrayOf("jsonb", payloads));
                consume.setArray(3, connection.createArrayOf("timestamptz", occurredAt));
                ResultSet rows = consume.executeQuery();
                while (rows.next()) {
                    if (rows.getString("outcome").equals("first")) {
                        insert.setString(1, rows.getString("key"));
                        insert.setLong(2, rows.getLong("pieces"));
                        insert.execute();
                    }
                    outcomes.add(rows.getString("outcome"));
                }
            }
            return String.join(",", outcomes);
        });
    }
    // doc: end

    /** What must not be: claimed and completed in one transaction. */
    static void early(Connection connection, String key, String params) throws SQLException {
        transaction(connection, () -> {
            claim(connection, key, params, null, null);
            try (PreparedStatement complete = connection.prepareStatement(
                    "SELECT idem_complete(key, generation) FROM idem_status(?)")) {
                complete.setString(1, key);
                complete.execute();
            }
            return null;
        });
    }

    interface Binding {
        void bind(PreparedStatement statement) throws SQLException;
    }

    static String bindings(Connection connection, String key, String params,
            OffsetDateTime occurredAt) throws SQLException {
        PGobject typed = new PGobject();
        typed.setType("idem_key");
        typed.setValue(key);
        List<Binding> bindings = List.of(
            statement -> statement.setString(1, key),
            statement -> statement.setObject(1, key),
            statement -> statement.setObject(1, key, Types.VARCHAR),
            statement -> statement.setObject(1, key, Types.OTHER),
            statement -> statement.setObject(1, typed));
        SortedSet<String> outcomes = new TreeSet<>();
        for (String placeholder : List.of("?", "?::text", "?::varchar", "?::idem_key")) {
            for (Binding binding : bindings) {
                try (PreparedStatement claim = connection.prepareStatement(
                        "SELECT outcome FROM idem_claim(" + placeholder + ", ?::jsonb, ?)")) {
                    binding.bind(claim);
                    claim.setString(2, params);
                    claim.setObject(3, occurredAt);
                    ResultSet rows = claim.executeQuery();
                    rows.next();
                    outcomes.add(rows.getString(1));
                }
            }
        }
        return String.join(",", outcomes);
    }

    static String many(Connection connection, int times, String key, String params,
            OffsetDateTime occurredAt) throws SQLException {
        SortedSet<String> outcomes = new TreeSet<>();
        for (int i = 0; i < times; i++) {
            outcomes.add(claim(connection, key, params, occurredAt, null).split("[=\t]")[1]);
        }
        return String.join(",", outcomes);
    }

    static String prepared(Connection connection) throws SQLException {
        try (PreparedStatement count = connection.prepareStatement(
                "SELECT count(*) FROM pg_prepared_statements WHERE NOT from_sql")) {
            ResultSet rows = count.executeQuery();
            rows.next();
            return rows.getString(1);
        }
    }

    /** What comes of what the page warns of. */
    static String mistakes(Connection connection, String key, OffsetDateTime occurredAt)
            throws SQLException {
        String uncast = "none";
        try (PreparedStatement claim = connection.prepareStatement(
                "SELECT outcome FROM idem_claim(?, ?, ?)")) {
            claim.setString(1, key);
            claim.setString(2, "{}");
            claim.setObject(3, occurredAt);
            claim.execute();
        } catch (SQLException error) {
            uncast = error.getSQLState();
        }
        String exception = "none";
        try {
            transaction(connection, () -> {
                claim(connection, key, "{}", occurredAt, null);
                throw new IllegalStateException("not of the database");
            });
        } catch (IllegalStateException expected) {
            exception = claim(connection, key, "{}", occurredAt, null).split("[=\t]")[1];
        }
        try (PreparedStatement nothing = connection.prepareStatement("SELECT NULL::bigint")) {
            ResultSet rows = nothing.executeQuery();
            rows.next();
            return "uncast=" + uncast + "\texception=" + exception + "\tnull=" + rows.getLong(1);
        }
    }

    /* ---- the protocol ---- */

    static Long number(String word) {
        return word == null ? null : Long.valueOf(word);
    }

    static OffsetDateTime time(String word) {
        return word == null ? null : OffsetDateTime.parse(word);
    }

    static PGInterval interval(String word) throws SQLException {
        return word == null ? null : new PGInterval(word + " seconds");
    }

    static OffsetDateTime[] times(String word) {
        return List.of(word.split(",")).stream().map(WithJdbc::time).toArray(OffsetDateTime[]::new);
    }

    static String done(Object answer) {
        return "answer=" + answer;
    }

    static String answer(Connection connection, String[] w) throws SQLException {
        for (int i = 0; i < w.length; i++) {
            w[i] = w[i].equals("\\N") ? null : w[i];
        }
        switch (w[0]) {
            case "claim":
                return claim(connection, w[1], w[2], time(w[3]), interval(w[4]));
            case "complete":
                complete(connection, w[1], number(w[2]), w[3], w[4], number(w[5]));
                return done("done");
            case "try_complete":
                return done(tryComplete(connection, w[1], number(w[2]), w[3], w[4], number(w[5])));
            case "reject":
                reject(connection, w[1], number(w[2]), w[3]);
                return done("done");
            case "mark_unknown":
                markUnknown(connection, w[1], number(w[2]), w[3], interval(w[4]));
                return done("done");
            case "status":
                return status(connection, w[1]);
            case "once":
                return done(once(connection, w[1], w[2], number(w[3])));
            case "once_trap":
                return done(onceTrap(connection, w[1], w[2], number(w[3])));
            case "consume":
                return done(consume(connection, w[1].split(","), w[2].split("\\|"), times(w[3])));
            case "early":
                early(connection, w[1], w[2]);
                return done("done");
            case "bindings":
                return done(bindings(connection, w[1], w[2], time(w[3])));
            case "many":
                return done(many(connection, number(w[1]).intValue(), w[2], w[3], time(w[4])));
            case "prepared":
                return done(prepared(connection));
            case "mistakes":
                return mistakes(connection, w[1], time(w[2]));
            default:
                throw new IllegalArgumentException(w[0]);
        }
    }

    // doc: connect
    static Connection connect(String host, String port, String database, String user,
            boolean pooled) throws SQLException {
        // PgBouncer in transaction mode, before 1.21: no named statements
        return DriverManager.getConnection("jdbc:postgresql://" + host + ":" + port + "/" + database
            + "?user=" + user + (pooled ? "&prepareThreshold=0" : ""));
    }
    // doc: end

    public static void main(String[] arguments) throws SQLException, IOException {
        BufferedReader input =
            new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        try (Connection connection = connect(System.getenv("PGHOST"), System.getenv("PGPORT"),
                System.getenv("PGDATABASE"), System.getenv("PGUSER"), arguments.length > 0)) {
            for (String line = input.readLine(); line != null; line = input.readLine()) {
                String told;
                try {
                    told = answer(connection, line.split("\t"));
                } catch (SQLException error) {
                    told = "sqlstate=" + error.getSQLState() + "\tclass="
                        + error.getClass().getSimpleName();
                }
                System.out.println(told);
            }
        }
    }
}
