# about: java -version, javac, and a Java program with threads and direct buffers
# programs: java javac
# needs: java javac

$RUN java -version || exit 1
cat >Work.java <<'END'
import java.nio.ByteBuffer;
import java.util.*;
import java.util.concurrent.*;
import java.util.zip.*;

public class Work {
    static long run(int seed) throws Exception {
        Random random = new Random(seed);
        Map<String, Integer> counts = new TreeMap<>();
        for (int i = 0; i < 50_000; i++) counts.merge(Integer.toString(random.nextInt(5_000), 36), 1, Integer::sum);
        byte[] text = counts.toString().getBytes("UTF-8");
        long sum = 0;
        for (int i = 0; i < 150; i++) {
            ByteBuffer buffer = ByteBuffer.allocateDirect(1 + random.nextInt(100_000));
            buffer.put(buffer.capacity() / 2, (byte) i);
            sum += buffer.get(buffer.capacity() / 2) + buffer.capacity();
            Deflater deflater = new Deflater(1 + i % 9);
            deflater.setInput(text);
            deflater.finish();
            byte[] packed = new byte[text.length + 100];
            int length = deflater.deflate(packed);
            deflater.end();
            Inflater inflater = new Inflater();
            inflater.setInput(packed, 0, length);
            byte[] back = new byte[text.length];
            sum += inflater.inflate(back) + (Arrays.equals(text, back) ? 1 : 0);
            inflater.end();
        }
        return sum;
    }

    public static void main(String[] arguments) throws Exception {
        ExecutorService pool = Executors.newFixedThreadPool(8);
        List<Future<Long>> results = new ArrayList<>();
        for (int seed = 0; seed < 8; seed++) {
            int mine = seed;
            results.add(pool.submit(() -> run(mine)));
        }
        for (Future<Long> result : results) System.out.println(result.get());
        pool.shutdown();
        System.exit(4);
    }
}
END
$RUN javac Work.java || exit 1
$RUN java -Xmx256m Work
echo "exit code $?"
