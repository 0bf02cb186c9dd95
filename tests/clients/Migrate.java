import org.flywaydb.core.Flyway;

/** Runs the scripts of a folder on a database; its table of versions has a name of its own. */
class Migrate {
    public static void main(String[] words) {
        int done = Flyway.configure()
            .dataSource(words[0], words[1], words[2])
            .locations("filesystem:" + words[3])
            .table(words[4])
            .baselineOnMigrate(true)
            .baselineVersion("0")
            .load()
            .migrate()
            .migrationsExecuted;
        System.out.println("done: " + done);
    }
}
