"""Directives that are not carried over: by groups, each with its reason."""

from __future__ import annotations

from dataclasses import dataclass

from api.import_export.convert.report import Effect


@dataclass(frozen=True, slots=True)
class Group:
    """Directives with one reason why they are not carried over."""

    effect: Effect
    names: str
    why: str
    instead: str = ""


_GROUPS = (
    Group(
        Effect.UNNEEDED,
        """
        cache_mem maximum_object_size_in_memory memory_cache_shared memory_cache_mode
        memory_replacement_policy cache_replacement_policy minimum_object_size maximum_object_size cache_dir
        store_dir_select_algorithm max_open_disk_fds cache_swap_low cache_swap_high cache store_miss
        send_hit no_cache max_stale refresh_pattern quick_abort_min quick_abort_max quick_abort_pct
        read_ahead_gap negative_ttl range_offset_limit minimum_expiry_time store_avg_object_size
        store_objects_per_bucket cache_store_log cache_swap_state cache_swap_log store_id_program
        store_id_extras store_id_children store_id_access store_id_bypass collapsed_forwarding
        collapsed_forwarding_access shared_transient_entries_limit vary_ignore_expire reload_into_ims
        refresh_all_ims offline_mode cache_miss_revalidate digest_generation digest_bits_per_entry
        digest_rebuild_period digest_rewrite_period digest_swapout_chunk_size
        digest_rebuild_chunk_percentage hierarchy_stoplist diskd_program unlinkd_program
        storeurl_rewrite_program zph_local memory_pools memory_pools_limit ipcache_size ipcache_low
        ipcache_high fqdncache_size buffered_logs coredump_dir swap_level1_dirs
        """,
        "there is no cache of responses",
    ),
    Group(
        Effect.UNNEEDED,
        """
        icp_port htcp_port icp_access htcp_access htcp_clr_access snmp_port snmp_access
        snmp_incoming_address snmp_outgoing_address udp_incoming_address udp_outgoing_address icp_hit_stale
        minimum_direct_hops minimum_direct_rtt netdb_low netdb_high netdb_ping_period netdb_filename
        query_icmp test_reachability icp_query_timeout maximum_icp_query_timeout minimum_icp_query_timeout
        background_ping_rate mcast_groups mcast_miss_addr mcast_miss_ttl mcast_miss_port
        mcast_miss_encode_key mcast_icp_query_timeout wccp_router wccp2_router wccp_version
        wccp2_rebuild_wait wccp2_forwarding_method wccp2_return_method wccp2_assignment_method wccp2_service
        wccp2_service_info wccp2_weight wccp_address wccp2_address neighbor_type_domain dead_peer_timeout
        log_icp_queries pinger_program pinger_enable announce_period announce_host announce_file
        announce_port
        """,
        "caches ask each other by it, and there is no cache here",
    ),
    Group(
        Effect.UNNEEDED,
        """
        access_log logformat cache_log debug_options logfile_rotate logfile_daemon log_mime_hdrs
        strip_query_terms client_netmask log_fqdn useragent_log referer_log emulate_httpd_log mime_table
        stats_collection log_uses_indirect_client icap_log log_access log_icap forward_log email_err_data
        """,
        "requests are recorded anyway: see docs/logs.md for what can be set",
    ),
    Group(
        Effect.UNNEEDED,
        """
        pid_filename cache_effective_user cache_effective_group chroot umask workers cpu_affinity_map
        shared_memory_locking hopeless_kid_revival_delay max_filedescriptors max_filedesc sleep_after_fork
        shutdown_lifetime mail_from mail_program cache_mgr high_response_time_warning
        high_page_fault_warning high_memory_warning loadable_modules client_db accept_filter
        tcp_recv_bufsize incoming_icp_average incoming_http_average incoming_dns_average min_icp_poll_cnt
        min_dns_poll_cnt min_http_poll_cnt incoming_udp_average incoming_tcp_average min_udp_poll_cnt
        min_tcp_poll_cnt windows_ipaddrchangemonitor cachemgr_passwd eui_lookup unique_hostname
        hostname_aliases httpd_suppress_version_string service_name configuration_includes_quoted_values
        icon_directory global_internal_static short_icon_urls error_directory error_default_language
        error_log_languages err_page_stylesheet err_html_text crypt_passwd_file
        """,
        "it is about squid's own process, reports and pages",
    ),
    Group(
        Effect.UNNEEDED,
        """
        ftp_user ftp_passive ftp_epsv_all ftp_epsv ftp_eprt ftp_sanitycheck ftp_telnet_protocol
        ftp_list_width ftp_port ftp_client_idle_timeout as_whois_server wais_relay_host wais_relay_port
        """,
        "there is no FTP, gopher or whois for clients; FTP over SOCKS and CONNECT works",
    ),
    Group(
        Effect.UNNEEDED,
        """
        relaxed_header_parser request_entities pipeline_prefetch uri_whitespace check_hostnames
        allow_underscore client_persistent_connections server_persistent_connections
        persistent_connection_after_error detect_broken_pconn half_closed_clients balance_on_multiple_ip
        retry_on_error connect_retries broken_vary_encoding ie_refresh broken_posts
        force_request_body_continuation http_upgrade_request_protocols server_pconn_for_nonretriable
        happy_eyeballs_connect_timeout happy_eyeballs_connect_gap happy_eyeballs_connect_limit
        host_verify_strict client_dst_passthru forward_max_tries request_header_max_size
        reply_header_max_size client_request_buffer_max_size delay_initial_bucket_level
        client_delay_initial_bucket_level delay_pools client_delay_pools authenticate_cache_garbage_interval
        authenticate_ttl authenticate_ip_ttl auth_schemes spoof_client_ip dns_retransmit_interval
        dns_timeout dns_packet_max dns_defnames dns_multicast_local dns_children ignore_unknown_nameservers
        dns_v4_first dns_testnames extension_methods ident_timeout ident_lookup_access external_acl_type
        acl_uses_indirect_client delay_pool_uses_indirect_client tproxy_uses_indirect_client
        adaptation_uses_indirect_client note visible_hostname url_rewrite_children redirect_children
        url_rewrite_bypass url_rewrite_extras url_rewrite_host_header url_rewrite_timeout
        url_rewrite_concurrency on_unsupported_protocol httpd_accel_surrogate_id http_accel_surrogate_remote
        esi_parser upgrade_http0.9 server_http11 update_headers
        """,
        "a proxy here does it in a way of its own",
    ),
    Group(
        Effect.LOST,
        """
        connect_timeout forward_timeout read_timeout write_timeout request_timeout request_start_timeout
        client_idle_pconn_timeout persistent_request_timeout pconn_timeout server_idle_pconn_timeout
        client_lifetime pconn_lifetime peer_connect_timeout
        """,
        "a proxy here has one time for connecting and for idleness",
        "set settings.timeout of the proxies (seconds), if 30 is too short or too long",
    ),
    Group(
        Effect.LOST,
        "deny_info",
        "refusals have no pages of their own",
        "a rule's reason is a sentence that the client of a refused request reads",
    ),
    Group(
        Effect.LOST,
        "request_body_max_size reply_body_max_size",
        "sizes of bodies are not limited",
        "set a quota of accounts, which limits what they transfer in all",
    ),
    Group(
        Effect.LOST,
        """
        tcp_outgoing_tos tcp_outgoing_mark clientside_tos mark_client_packet mark_client_connection
        qos_flows
        """,
        "packets are not marked",
        "mark them by the source address (bind_address) in a firewall",
    ),
    Group(
        Effect.LOST,
        "reply_header_access reply_header_replace reply_header_add",
        "fields of responses are passed on as they are",
        "remove them at the clients or the origins",
    ),
    Group(
        Effect.LOST,
        """
        ssl_bump sslproxy_cert_error sslproxy_cert_sign sslproxy_cert_adapt sslcrtd_program sslcrtd_children
        sslcrtvalidator_program sslcrtvalidator_children sslproxy_foreign_intermediate_certs
        sslproxy_cert_sign_hash tls_outgoing_options sslproxy_session_ttl sslproxy_session_cache_size
        sslpassword_program ssl_unclean_shutdown ssl_engine sslproxy_cafile sslproxy_capath sslproxy_cipher
        sslproxy_flags sslproxy_options sslproxy_version sslproxy_client_certificate sslproxy_client_key
        """,
        "tunnels are never decrypted",
        "rules about hosts and ports hold for tunnels as well",
    ),
    Group(
        Effect.LOST,
        "hosts_file append_domain",
        "names are resolved as the machine does",
        "name hosts in proxy.dns.hosts, and domains to append in /etc/resolv.conf",
    ),
    Group(
        Effect.LOST,
        "cache_peer_domain",
        "older than cache_peer_access, which says the same",
        "write it as acl … dstdomain and cache_peer_access, and convert again",
    ),
    Group(
        Effect.LOST,
        "client_delay_parameters client_delay_access response_delay_pool response_delay_pool_access",
        "uploads and responses of single clients are not limited by a proxy",
        "limit the bandwidth of accounts or plans",
    ),
    Group(
        Effect.LOST,
        """
        icap_enable icap_service icap_class icap_service_failure_limit icap_preview_enable icap_preview_size
        icap_connect_timeout icap_io_timeout icap_service_revival_delay icap_206_enable
        icap_default_options_ttl icap_persistent_connections adaptation_send_client_ip
        adaptation_send_username icap_send_client_ip icap_send_client_username icap_client_username_header
        icap_client_username_encode ecap_enable ecap_service adaptation_service_set adaptation_service_chain
        adaptation_service_iteration_limit adaptation_masterx_shared_names adaptation_meta icap_retry
        icap_retry_limit
        """,
        "contents are not sent to other services",
        "use the service as an upstream, if it is a proxy, too",
    ),
)

OTHERS = {name: group for group in _GROUPS for name in group.names.split()}
"""By the name of the directive."""
UNKNOWN = Group(Effect.LOST, "", "this directive is unknown", "check its spelling; if it denies something, add a rule")
