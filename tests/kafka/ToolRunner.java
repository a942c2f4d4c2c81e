// Runs Kafka's command line tools, one after the other in one JVM: a JVM for each takes seconds.
// In: a line of JSON for each, [main class, argument, ...]. Out: a line of JSON for each,
// {"exit": code, "out": what it printed, "err": likewise}.
import com.fasterxml.jackson.databind.ObjectMapper;
import java.io.BufferedReader;
import java.io.ByteArrayOutputStream;
import java.io.InputStreamReader;
import java.io.OutputStream;
import java.io.PrintStream;
import java.io.PrintWriter;
import java.io.StringWriter;
import java.lang.reflect.InvocationTargetException;
import java.nio.charset.StandardCharsets;
import java.util.Arrays;
import java.util.LinkedHashMap;
import java.util.Map;
import org.apache.kafka.common.utils.Exit;

public final class ToolRunner {
    /** Scala's Console keeps the stream that it found first, so what is behind it changes. */
    private static final class Switched extends OutputStream {
        private final ByteArrayOutputStream held = new ByteArrayOutputStream();

        @Override
        public synchronized void write(int b) {
            held.write(b);
        }

        synchronized String take() {
            String text = held.toString(StandardCharsets.UTF_8);
            held.reset();
            return text;
        }
    }

    /** What a tool that exits ends with. Some catch it and exit again: the first time counts. */
    private static final class Ended extends RuntimeException {
        Ended() {
            super(null, null, false, false);
        }
    }

    private static final Switched OUT = new Switched();
    private static final Switched ERR = new Switched();
    private static Map<String, Object> ended;

    private static void end(int code, String message) {
        if (ended == null) {
            if (message != null) {
                System.err.println(message);
            }
            System.out.flush();
            ended = new LinkedHashMap<>();
            ended.put("exit", code);
            ended.put("out", OUT.take());
            ended.put("err", ERR.take());
        }
    }

    private static Map<String, Object> run(String[] call) throws Exception {
        ended = null;
        OUT.take();
        ERR.take();
        try {
            Class<?> tool = Class.forName(call[0]);
            String[] arguments = Arrays.copyOfRange(call, 1, call.length);
            tool.getMethod("main", String[].class).invoke(null, (Object) arguments);
            end(0, null);
        } catch (InvocationTargetException thrown) {
            StringWriter trace = new StringWriter();
            thrown.getCause().printStackTrace(new PrintWriter(trace));
            end(1, trace.toString());
        }
        return ended;
    }

    public static void main(String[] none) throws Exception {
        PrintStream answers = System.out;
        System.setOut(new PrintStream(OUT, true, StandardCharsets.UTF_8));
        System.setErr(new PrintStream(ERR, true, StandardCharsets.UTF_8));
        Exit.Procedure exit = (code, message) -> {
            end(code, message);
            throw new Ended();
        };
        Exit.setExitProcedure(exit);
        Exit.setHaltProcedure(exit);
        ObjectMapper json = new ObjectMapper();
        BufferedReader calls =
            new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = calls.readLine(); line != null; line = calls.readLine()) {
            answers.println(json.writeValueAsString(run(json.readValue(line, String[].class))));
            answers.flush();
        }
    }
}
