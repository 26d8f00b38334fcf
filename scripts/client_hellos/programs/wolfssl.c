/* wolfssl PORT NAME [PROTOCOLS]; cc wolfssl.c -lwolfssl */
#include <wolfssl/options.h>
#include <wolfssl/ssl.h>
#include <arpa/inet.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int main(int count, char **given) {
    int sock = socket(AF_INET, SOCK_STREAM, 0);
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons(atoi(given[1]))};
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    connect(sock, (struct sockaddr *)&address, sizeof address);
    wolfSSL_Init();
    WOLFSSL *tls = wolfSSL_new(wolfSSL_CTX_new(wolfSSLv23_client_method()));
    wolfSSL_set_verify(tls, WOLFSSL_VERIFY_NONE, 0);
    wolfSSL_UseSNI(tls, WOLFSSL_SNI_HOST_NAME, given[2], strlen(given[2]));
    if (count > 3) wolfSSL_UseALPN(tls, given[3], strlen(given[3]), WOLFSSL_ALPN_CONTINUE_ON_MISMATCH);
    wolfSSL_set_fd(tls, sock);
    wolfSSL_connect(tls);
    printf("%d\n", wolfSSL_get_error(tls, 0));
    return 0;
}
