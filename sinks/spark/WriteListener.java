package epochal;

import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;
import org.apache.hadoop.fs.Path;
import org.apache.spark.sql.classic.SparkSession;
import org.apache.spark.sql.execution.CommandResultExec;
import org.apache.spark.sql.execution.QueryExecution;
import org.apache.spark.sql.execution.SparkPlan;
import org.apache.spark.sql.execution.adaptive.AdaptiveSparkPlanExec;
import org.apache.spark.sql.execution.adaptive.QueryStageExec;
import org.apache.spark.sql.execution.command.DataWritingCommandExec;
import org.apache.spark.sql.execution.datasources.InsertIntoHadoopFsRelationCommand;
import org.apache.spark.sql.util.QueryExecutionListener;
import org.apache.spark.util.AccumulatorV2;

/**
 * Waits for what Spark says of one write: how many files, bytes and rows its tasks have written.
 *
 * Each task looks at its files when it has closed them, on its own machine; the driver adds up the tasks that were
 * committed. Spark's observe goes by the same event, and plans the frame once more for it.
 */
public final class WriteListener implements QueryExecutionListener {
    private final CountDownLatch over = new CountDownLatch(1);
    private SparkSession session;
    private String folder;
    private String metrics;
    private volatile String seen = "";

    /** From now on, until `stop`. */
    public void listen(SparkSession session, String folder) {
        this.session = session;
        this.folder = new Path(folder).toUri().getPath();
        session.listenerManager().register(this);
    }

    public void onSuccess(String name, QueryExecution execution, long nanoseconds) {
        SparkPlan plan = execution.executedPlan();
        for (SparkPlan inner = inside(plan); inner != plan; inner = inside(plan)) {
            plan = inner;
        }
        if (plan instanceof DataWritingCommandExec) {
            DataWritingCommandExec writing = (DataWritingCommandExec) plan;
            if (writing.cmd() instanceof InsertIntoHadoopFsRelationCommand) {
                InsertIntoHadoopFsRelationCommand command = (InsertIntoHadoopFsRelationCommand) writing.cmd();
                if (folder.equals(command.outputPath().toUri().getPath())) {
                    metrics = metric(command, "numFiles") + " " + metric(command, "numOutputBytes") + " "
                            + metric(command, "numOutputRows");
                    over.countDown();
                    return;
                }
            }
        }
        seen = plan.nodeName();
    }

    public void onFailure(String name, QueryExecution execution, Exception fault) {
        // Who asked for the write has the exception.
    }

    /** "files bytes rows", or null if Spark has said nothing of the write in so many seconds. */
    public String take(long seconds) throws Exception {
        return over.await(seconds, TimeUnit.SECONDS) ? metrics : null;
    }

    /** What else has run meanwhile. */
    public String seen() {
        return seen;
    }

    public void stop() {
        session.listenerManager().unregister(this);
    }

    private static SparkPlan inside(SparkPlan plan) {
        if (plan instanceof AdaptiveSparkPlanExec) {
            return ((AdaptiveSparkPlanExec) plan).executedPlan();
        }
        if (plan instanceof QueryStageExec) {
            return ((QueryStageExec) plan).plan();
        }
        return plan instanceof CommandResultExec ? ((CommandResultExec) plan).commandPhysicalPlan() : plan;
    }

    private static Object metric(InsertIntoHadoopFsRelationCommand command, String name) {
        return ((AccumulatorV2) command.metrics().apply(name)).value();
    }
}
