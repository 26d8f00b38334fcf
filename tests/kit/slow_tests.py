"""How long one test may take, and which may take longer, each with its reason. The list may only shrink."""

from __future__ import annotations

CEILING = 5.0
"""Seconds of a test's own work, without what its fixtures start, on an idle machine."""
TIMES_ON_SLOW_MACHINES = 12.0
"""`.ci/run` fails by a test that takes a minute, so many times the ceiling: machines may be slow and busy."""

SLOW_TESTS = {
    "test_nothing_in_the_description_is_contradicted_by_the_running_product": (
        "a short run of schemathesis over every operation"
    ),
    "test_install_upgrade_go_back_and_remove": "installs two releases, each with an environment of its own",
    "test_the_package_installs_upgrades_without_a_refused_connection_and_leaves_nothing": (
        "dpkg installs two versions with all that they depend on"
    ),
    "test_a_machine_joins_a_fleet_before_its_first_start": "a machine that boots, a release that it installs, a fleet",
    "test_a_running_product_becomes_a_node_goes_on_without_the_database_and_leaves": (
        "a database that is away for longer than a node may be silent, and two starts"
    ),
    "test_a_stopped_product_becomes_a_node_and_leaves_by_force": "three starts and a database that is away",
    "test_a_running_product_joins_serves_what_the_fleet_has_and_is_removed": "two products, a join and a removal",
    "test_a_caller_at_the_socket_unit_starts_the_service_and_the_watchdog_kills_one_that_hangs": (
        "waits for the watchdog"
    ),
    "test_a_killed_supervisor_is_started_again_with_all_its_ports_and_no_one_is_refused": "a start with 4,096 ports",
    "test_an_idle_tab_loads_a_tenth_of_a_megabyte_a_minute_at_most": "each idle tab is watched for some seconds",
    "test_screens_show_hostile_texts_as_text_are_accessible_in_every_theme_and_fit_every_width": (
        "all screens of an area, each in three themes and every width"
    ),
    "test_everything_works_elsewhere_with_its_secrets_and_after_a_restart": "another product and a restart",
    "test_every_acknowledged_create_is_there_after_a_kill_of_everything_in_the_middle": "two starts",
    "test_after_a_death_of_each_kind_the_product_is_healthy_again": "seven processes are started again",
    "test_lists_and_policies_outlive_every_process": "every process is killed and started again",
    "test_every_byte_counts_once_though_forwarding_actors_the_collector_and_all_are_killed": (
        "two starts and five kills"
    ),
    "test_what_is_open_at_an_upgrade_goes_on_for_its_time_is_counted_and_is_cut_with_a_reason_of_its_own": (
        "waits for the end of the time that open connections have"
    ),
    "test_the_stats_of_each_proxy_are_what_its_clients_counted": (
        "waits for a minute's interval of the statistics to be complete"
    ),
    "test_a_clock_that_is_set_back_an_hour_makes_no_spike_and_events_and_records_go_on": (
        "a start with a clock of its own"
    ),
    "test_requests_that_drip_and_handshakes_that_never_end_are_ended_by_an_absolute_deadline": (
        "a deadline that the product doesn't let configure: ten seconds"
    ),
    "test_the_credential_of_one_that_was_killed_lapses": "the credential's shortest time",
    "test_of_ten_thousand_groups_no_more_are_sent_than_a_page_has_and_each_turn_is_short": (
        "three passes over ten thousand connections, in short turns"
    ),
    "test_what_does_not_name_the_target_is_refused_and_not_an_octet_reaches_it": (
        "each way into a tunnel with each kind of name"
    ),
}
"""The name of a test, and what takes its time."""
