/* mbedtls PORT NAME [PROTOCOL]; cc mbedtls.c -lmbedtls -lmbedcrypto -lmbedx509 */
#include <mbedtls/ctr_drbg.h>
#include <mbedtls/entropy.h>
#include <mbedtls/net_sockets.h>
#include <mbedtls/ssl.h>
#include <stdio.h>

int main(int count, char **given) {
    mbedtls_net_context net;
    mbedtls_entropy_context entropy;
    mbedtls_ctr_drbg_context random;
    mbedtls_ssl_config config;
    mbedtls_ssl_context tls;
    const char *protocols[] = {count > 3 ? given[3] : NULL, NULL};
    mbedtls_net_init(&net);
    mbedtls_entropy_init(&entropy);
    mbedtls_ctr_drbg_init(&random);
    mbedtls_ssl_config_init(&config);
    mbedtls_ssl_init(&tls);
    mbedtls_ctr_drbg_seed(&random, mbedtls_entropy_func, &entropy, NULL, 0);
    mbedtls_net_connect(&net, "127.0.0.1", given[1], MBEDTLS_NET_PROTO_TCP);
    mbedtls_ssl_config_defaults(&config, MBEDTLS_SSL_IS_CLIENT, MBEDTLS_SSL_TRANSPORT_STREAM, MBEDTLS_SSL_PRESET_DEFAULT);
    mbedtls_ssl_conf_authmode(&config, MBEDTLS_SSL_VERIFY_NONE);
    mbedtls_ssl_conf_rng(&config, mbedtls_ctr_drbg_random, &random);
    mbedtls_ssl_conf_alpn_protocols(&config, protocols);
    mbedtls_ssl_setup(&tls, &config);
    mbedtls_ssl_set_hostname(&tls, given[2]);
    mbedtls_ssl_set_bio(&tls, &net, mbedtls_net_send, mbedtls_net_recv, NULL);
    printf("-0x%04x\n", -mbedtls_ssl_handshake(&tls));
    return 0;
}
