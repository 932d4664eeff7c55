package interop;

import java.io.ByteArrayOutputStream;
import java.io.IOException;
import java.io.InputStream;
import java.io.OutputStream;
import java.net.InetAddress;
import java.net.ServerSocket;
import java.net.Socket;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.List;

/**
 * Forwards TCP connections to the server. The HiveMQ client shows neither its socket nor the bytes
 * on it: the relay cuts connections, and counts texts in what it forwarded.
 */
final class Relay implements AutoCloseable {
    private final String host;
    private final int port;
    private final ServerSocket listener = new ServerSocket(0, 50, InetAddress.getLoopbackAddress());
    private final List<Socket> sockets = new ArrayList<>();
    private final ByteArrayOutputStream sent = new ByteArrayOutputStream();
    private final ByteArrayOutputStream received = new ByteArrayOutputStream();

    Relay(String host, int port) throws IOException {
        this.host = host;
        this.port = port;
        start(this::accept);
    }

    int port() {
        return listener.getLocalPort();
    }

    /** Returns how often a text occurs in the bytes that the client sent. */
    long countSent(String text) {
        return count(sent, text);
    }

    /** Returns how often a text occurs in the bytes that the client received. */
    long countReceived(String text) {
        return count(received, text);
    }

    /** Closes all connections. */
    synchronized void cut() throws IOException {
        for (Socket socket : sockets) {
            socket.close();
        }
        sockets.clear();
    }

    @Override
    public void close() throws IOException {
        listener.close();
        cut();
    }

    private static long count(ByteArrayOutputStream bytes, String text) {
        // One character for each byte.
        String all = bytes.toString(StandardCharsets.ISO_8859_1);
        long count = 0;
        for (int at = all.indexOf(text); at >= 0; at = all.indexOf(text, at + 1)) {
            count += 1;
        }
        return count;
    }

    private void accept() throws IOException {
        while (true) {
            Socket client = listener.accept();
            Socket server = new Socket(host, port);
            synchronized (this) {
                for (Socket socket : List.of(client, server)) {
                    socket.setTcpNoDelay(true);
                    sockets.add(socket);
                }
            }
            start(() -> forward(client, server, sent));
            start(() -> forward(server, client, received));
        }
    }

    private static void forward(Socket from, Socket to, ByteArrayOutputStream copy)
            throws IOException {
        try (from; to) {
            InputStream input = from.getInputStream();
            OutputStream output = to.getOutputStream();
            byte[] buffer = new byte[65_536];
            for (int length = input.read(buffer); length >= 0; length = input.read(buffer)) {
                copy.write(buffer, 0, length);
                output.write(buffer, 0, length);
            }
        }
    }

    private interface Task {
        void run() throws IOException;
    }

    private static void start(Task task) {
        Thread thread = new Thread(() -> {
            try {
                task.run();
            } catch (IOException closed) {
                // The connection or the relay was closed.
            }
        });
        thread.setDaemon(true);
        thread.start();
    }
}
