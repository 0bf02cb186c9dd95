import java.io.StringReader;
import java.math.BigDecimal;
import java.sql.Array;
import java.sql.Connection;
import java.sql.DatabaseMetaData;
import java.sql.DriverManager;
import java.sql.PreparedStatement;
import java.sql.ResultSet;
import java.sql.ResultSetMetaData;
import java.sql.SQLException;
import java.sql.Savepoint;
import java.sql.Statement;
import java.sql.Types;
import java.time.OffsetDateTime;
import java.util.Arrays;
import java.util.UUID;
import org.postgresql.PGConnection;

/** What a Java application does with a table. Says on standard output, line by line, what came of it. */
public class Events {
    static final OffsetDateTime OLD = OffsetDateTime.parse("2024-01-15T00:00:00Z");
    static final OffsetDateTime NEW = OffsetDateTime.parse("2090-07-01T00:00:00Z");

    interface Work {
        void on(Connection connection, String table) throws Exception;
    }

    public static void main(String[] given) throws Exception {
        for (String table : new String[] {"events", "plain"}) {
            System.out.println("== " + table);
            run(given[0], table, "select", Events::select);
            run(given[0], table, "prepared", Events::prepared);
            run(given[0], table, "generated keys", Events::generatedKeys);
            run(given[0], table, "batch", Events::batch);
            run(given[0] + "&reWriteBatchedInserts=true", table, "rewritten batch", Events::rewrittenBatch);
            run(given[0], table, "update and delete", Events::change);
            run(given[0], table, "fetch size", Events::fetched);
            run(given[0], table, "savepoint", Events::savepoint);
            run(given[0], table, "copy", Events::copy);
            run(given[0], table, "metadata", Events::metadata);
            run(given[0], table, "updatable result", Events::updatable);
        }
    }

    static void run(String url, String table, String what, Work work) throws Exception {
        System.out.println("-- " + what);
        try (Connection connection = DriverManager.getConnection(url)) {
            work.on(connection, "public." + table);
        }
    }

    static void print(ResultSet found) throws SQLException {
        ResultSetMetaData columns = found.getMetaData();
        while (found.next()) {
            StringBuilder line = new StringBuilder();
            for (int i = 1; i <= columns.getColumnCount(); i++) {
                line.append(columns.getColumnTypeName(i)).append('=').append(found.getString(i)).append(' ');
            }
            System.out.println(line);
        }
    }

    static void select(Connection connection, String table) throws Exception {
        try (Statement statement = connection.createStatement()) {
            print(statement.executeQuery("select * from " + table + " where id between 55 and 65 order by id"));
        }
    }

    /** Often enough that the driver prepares it on the server, and takes binary results. */
    static void prepared(Connection connection, String table) throws Exception {
        String query = "select id, ts, amount, ref, kind, tags from " + table + " where id = ? and ts >= ?";
        try (PreparedStatement statement = connection.prepareStatement(query)) {
            for (long id = 51; id <= 70; id++) {
                statement.setLong(1, id);
                statement.setObject(2, OffsetDateTime.parse("2000-01-01T00:00:00Z"));
                try (ResultSet found = statement.executeQuery()) {
                    found.next();
                    OffsetDateTime when = found.getObject(2, OffsetDateTime.class);
                    UUID ref = found.getObject(4, UUID.class);
                    String tags = Arrays.toString((Object[]) found.getArray(6).getArray());
                    System.out.println(found.getLong(1) + " " + when.toInstant() + " " + found.getBigDecimal(3) + " " + ref
                            + " " + found.getString(5) + " " + tags);
                }
            }
        }
    }

    static void generatedKeys(Connection connection, String table) throws Exception {
        String insert = "insert into " + table + " (ts, amount, data, tags, ref, kind) values (?, ?, ?::jsonb, ?, ?, ?::public.kind)";
        for (OffsetDateTime when : new OffsetDateTime[] {OLD, NEW}) {
            Array tags = connection.createArrayOf("text", new String[] {"x", null});
            try (PreparedStatement statement = connection.prepareStatement(insert, Statement.RETURN_GENERATED_KEYS)) {
                statement.setObject(1, when);
                statement.setBigDecimal(2, new BigDecimal("12.34"));
                statement.setString(3, "{\"a\": 1}");
                statement.setArray(4, tags);
                statement.setObject(5, new UUID(0, 7));
                statement.setString(6, "large");
                System.out.println(statement.executeUpdate());
                print(statement.getGeneratedKeys());
            }
            try (PreparedStatement statement = connection.prepareStatement(
                    "insert into " + table + " (ts, data) values (?, ?)", new String[] {"id", "status"})) {
                statement.setObject(1, when);
                statement.setNull(2, Types.OTHER);
                statement.executeUpdate();
                print(statement.getGeneratedKeys());
            }
        }
    }

    static void batch(Connection connection, String table) throws Exception {
        insertBatch(connection, table, "batch ");
    }

    static void rewrittenBatch(Connection connection, String table) throws Exception {
        insertBatch(connection, table, "rewritten ");
    }

    static void insertBatch(Connection connection, String table, String status) throws Exception {
        String insert = "insert into " + table + " (ts, status) values (?, ?)";
        try (PreparedStatement statement = connection.prepareStatement(insert)) {
            for (int i = 0; i < 40; i++) {
                statement.setObject(1, i % 2 == 0 ? OLD : NEW);
                statement.setString(2, status + i);
                statement.addBatch();
            }
            System.out.println(Arrays.toString(statement.executeBatch()));
        }
        try (Statement statement = connection.createStatement()) {
            print(statement.executeQuery("select count(*) from " + table + " where status like '" + status + "%'"));
        }
    }

    static void change(Connection connection, String table) throws Exception {
        try (Statement statement = connection.createStatement()) {
            System.out.println(statement.executeUpdate("update " + table + " set status = 'java' where id between 58 and 63"));
            System.out.println(statement.executeUpdate("delete from " + table + " where id in (5, 65, 999999)"));
        }
    }

    static void fetched(Connection connection, String table) throws Exception {
        connection.setAutoCommit(false);
        try (Statement statement = connection.createStatement()) {
            statement.setFetchSize(7);
            print(statement.executeQuery("select id, status from " + table + " order by id, ts"));
        }
        connection.rollback();
    }

    static void savepoint(Connection connection, String table) throws Exception {
        connection.setAutoCommit(false);
        try (Statement statement = connection.createStatement()) {
            statement.executeUpdate("update " + table + " set version = version + 1 where id in (8, 68)");
            Savepoint before = connection.setSavepoint();
            try {
                statement.executeUpdate("insert into " + table + " (id, ts) select id, ts from " + table + " where id = 9");
            } catch (SQLException error) {
                System.out.println(error.getSQLState());
                connection.rollback(before);
            }
        }
        connection.commit();
    }

    static void copy(Connection connection, String table) throws Exception {
        String lines = "801\t2024-01-15 00:00+00\tcopied\n802\t2090-07-01 00:00+00\tcopied\n";
        String copy = "copy " + table + " (id, ts, status) from stdin";
        System.out.println(connection.unwrap(PGConnection.class).getCopyAPI().copyIn(copy, new StringReader(lines)));
    }

    /** What tools read before they do anything. */
    static void metadata(Connection connection, String table) throws Exception {
        DatabaseMetaData about = connection.getMetaData();
        String name = table.substring("public.".length());
        try (ResultSet found = about.getColumns(null, "public", name, null)) {
            while (found.next()) {
                String column = found.getString("COLUMN_NAME");
                System.out.println((column.equals("id") ? "differs: " : "") + column + " " + found.getString("TYPE_NAME"));
            }
        }
        try (ResultSet found = about.getTables(null, "public", name, null)) {
            while (found.next()) {
                System.out.println("differs: " + found.getString("TABLE_TYPE"));
            }
        }
        try (ResultSet found = about.getPrimaryKeys(null, "public", name)) {
            while (found.next()) {
                System.out.println("differs: key " + found.getString("COLUMN_NAME"));
            }
        }
    }

    static void updatable(Connection connection, String table) throws Exception {
        String query = "select id, ts, version from " + table + " where id = 11";
        try (Statement statement = connection.createStatement(ResultSet.TYPE_FORWARD_ONLY, ResultSet.CONCUR_UPDATABLE);
                ResultSet found = statement.executeQuery(query)) {
            found.next();
            found.updateInt("version", found.getInt("version"));
            found.updateRow();
            System.out.println("differs: updated");
        } catch (SQLException error) {
            System.out.println("differs: " + error.getMessage());
        }
    }
}
