// JSSE: java Hello.java PORT NAME PROTOCOLS VERSION...
import java.net.Socket;
import javax.net.ssl.SSLContext;
import javax.net.ssl.SSLSocket;

class Hello {
    public static void main(String[] given) throws Exception {
        Socket plain = new Socket("127.0.0.1", Integer.parseInt(given[0]));
        SSLSocket socket = (SSLSocket) SSLContext.getDefault().getSocketFactory().createSocket(plain, given[1], 443, true);
        var parameters = socket.getSSLParameters();
        if (!given[2].isEmpty()) {
            parameters.setApplicationProtocols(given[2].split(","));
        }
        parameters.setProtocols(java.util.Arrays.copyOfRange(given, 3, given.length));
        socket.setSSLParameters(parameters);
        try {
            socket.startHandshake();
        } catch (java.io.IOException error) {
            System.out.println(error);
        }
    }
}
