import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.Locale;

import org.apache.flink.api.common.JobID;
import org.apache.flink.api.common.RuntimeExecutionMode;
import org.apache.flink.api.common.eventtime.WatermarkStrategy;
import org.apache.flink.configuration.CheckpointingOptions;
import org.apache.flink.configuration.Configuration;
import org.apache.flink.configuration.CoreOptions;
import org.apache.flink.configuration.ExecutionOptions;
import org.apache.flink.configuration.PipelineOptions;
import org.apache.flink.configuration.RestOptions;
import org.apache.flink.configuration.RestartStrategyOptions;
import org.apache.flink.connector.file.sink.FileSink;
import org.apache.flink.connector.file.src.FileSource;
import org.apache.flink.connector.file.src.FileSourceSplit;
import org.apache.flink.core.execution.CheckpointingMode;
import org.apache.flink.core.fs.FileSystem;
import org.apache.flink.core.fs.Path;
import org.apache.flink.formats.parquet.ParquetColumnarRowInputFormat;
import org.apache.flink.formats.parquet.row.ParquetRowDataBuilder;
import org.apache.flink.runtime.checkpoint.CheckpointStatsCounts;
import org.apache.flink.runtime.jobgraph.JobGraph;
import org.apache.flink.runtime.minicluster.MiniCluster;
import org.apache.flink.runtime.minicluster.MiniClusterConfiguration;
import org.apache.flink.streaming.api.environment.StreamExecutionEnvironment;
import org.apache.flink.streaming.api.functions.sink.filesystem.bucketassigners.BasePathBucketAssigner;
import org.apache.flink.streaming.api.functions.sink.filesystem.rollingpolicies.OnCheckpointRollingPolicy;
import org.apache.flink.table.data.RowData;
import org.apache.flink.table.runtime.typeutils.InternalTypeInfo;
import org.apache.flink.table.types.logical.BigIntType;
import org.apache.flink.table.types.logical.DoubleType;
import org.apache.flink.table.types.logical.IntType;
import org.apache.flink.table.types.logical.LogicalType;
import org.apache.flink.table.types.logical.RowType;
import org.apache.flink.table.types.logical.VarCharType;

/**
 * Flink's FileSink as one competitor of a race: a cluster in this process that copies Parquet, job after job.
 *
 * <p>Each line of the input is a job: {@code run}, the source folder, the target, the folder of checkpoints and the
 * milliseconds between two of them, with tabs in between. Each is answered by one line of JSON when the job has ended:
 * its seconds, from the line to the end, and how many checkpoints were completed. The end of the input ends the process.
 *
 * <p>One process for all jobs: a Java that has just started is several times slower.
 */
public final class FileSinkRace {

    private static final int BATCH = 2048; // rows that the vectorised reader hands on together, Flink's own default
    private static final RowType ROW = RowType.of(
            new LogicalType[] {new BigIntType(), new VarCharType(VarCharType.MAX_LENGTH), new DoubleType(), new IntType()},
            new String[] {"id", "s", "d", "p"});

    public static void main(String[] args) throws Exception {
        int parallelism = Integer.parseInt(args[0]);
        Configuration settings = new Configuration();
        settings.set(RestOptions.BIND_PORT, "0");
        FileSystem.initialize(settings, null);
        MiniClusterConfiguration cluster = new MiniClusterConfiguration.Builder()
                .setConfiguration(settings)
                .setCommonBindAddress("127.0.0.1")
                .setNumTaskManagers(1)
                .setNumSlotsPerTaskManager(parallelism)
                .build();
        try (MiniCluster flink = new MiniCluster(cluster)) {
            flink.start();
            System.out.println("{\"ready\": true}");
            BufferedReader lines = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
            for (String line = lines.readLine(); line != null; line = lines.readLine()) {
                String[] words = line.split("\t");
                if (words.length != 5 || !words[0].equals("run")) {
                    throw new IllegalArgumentException("not a job: " + line);
                }
                System.out.println(run(flink, parallelism, words[1], words[2], words[3], Long.parseLong(words[4])));
            }
        }
    }

    private static String run(
            MiniCluster flink, int parallelism, String source, String target, String checkpoints, long interval)
            throws Exception {
        long start = System.nanoTime();
        JobGraph job = copy(source, target, settings(parallelism, checkpoints, interval));
        // With a bounded source the end of a job waits for a last checkpoint: then every row is in a finished file.
        JobID id = flink.executeJobBlocking(job).getJobID();
        double seconds = (System.nanoTime() - start) / 1e9;
        CheckpointStatsCounts counts = flink.getExecutionGraph(id).get().getCheckpointStatsSnapshot().getCounts();
        return String.format(
                Locale.ROOT,
                "{\"seconds\": %.4f, \"checkpoints\": %d}",
                seconds,
                counts.getNumberOfCompletedCheckpoints());
    }

    private static Configuration settings(int parallelism, String checkpoints, long interval) {
        Configuration settings = new Configuration();
        settings.set(CoreOptions.DEFAULT_PARALLELISM, parallelism);
        settings.set(PipelineOptions.OBJECT_REUSE, true);
        settings.set(ExecutionOptions.RUNTIME_MODE, RuntimeExecutionMode.STREAMING); // batch would make one epoch of all
        settings.set(CheckpointingOptions.CHECKPOINTING_CONSISTENCY_MODE, CheckpointingMode.EXACTLY_ONCE);
        settings.set(CheckpointingOptions.CHECKPOINTING_INTERVAL, Duration.ofMillis(interval));
        settings.set(CheckpointingOptions.CHECKPOINT_STORAGE, "filesystem");
        settings.set(CheckpointingOptions.CHECKPOINTS_DIRECTORY, checkpoints);
        // A fault must end the job, not lengthen it.
        settings.set(RestartStrategyOptions.RESTART_STRATEGY, "none");
        return settings;
    }

    private static JobGraph copy(String source, String target, Configuration settings) {
        org.apache.hadoop.conf.Configuration parquet = new org.apache.hadoop.conf.Configuration();
        parquet.set("parquet.compression", "SNAPPY"); // as Spark has it by default
        ParquetColumnarRowInputFormat<FileSourceSplit> reader =
                new ParquetColumnarRowInputFormat<>(parquet, ROW, InternalTypeInfo.of(ROW), BATCH, true, true);
        FileSource<RowData> rows = FileSource.forBulkFileFormat(reader, new Path(source)).build();
        // No buckets by the hour, Flink's default: the others write into one folder too.
        FileSink<RowData> files = FileSink.forBulkFormat(
                        new Path(target), ParquetRowDataBuilder.createWriterFactory(ROW, parquet, true))
                .withBucketAssigner(new BasePathBucketAssigner<>())
                .withRollingPolicy(OnCheckpointRollingPolicy.build())
                .build();
        StreamExecutionEnvironment stream = StreamExecutionEnvironment.getExecutionEnvironment(settings);
        stream.fromSource(rows, WatermarkStrategy.noWatermarks(), "source").sinkTo(files);
        return stream.getStreamGraph().getJobGraph();
    }
}
