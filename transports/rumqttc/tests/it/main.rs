//! The link against a scripted broker, and against mosquitto if it is installed.
//!
//! Defects that MQTT libraries and brokers have shown, with their regression tests:
//!
//! * More requests than any queue holds do not stall, before and after the connection:
//!   `suite::requests_beyond_every_queue_do_not_stall`, `suite::smallest_queues_do_not_stall`.
//! * Large replies arrive. A packet that the broker does not accept is refused, and the connection
//!   stays: `real::binary_keys_and_large_values_round_trip`,
//!   `suite::packet_beyond_the_maximum_is_refused_and_the_connection_stays`.
//! * Requests in flight end when the broker dies: `real::requests_end_when_the_broker_dies`,
//!   `suite::queued_requests_end_with_the_connection`.
//! * The next connection may allow fewer requests in flight:
//!   `suite::requests_of_a_lost_connection_end_and_the_next_may_allow_less`.
//! * A refused subscription, and a granted one without messages, are reported:
//!   `suite::refused_subscription_is_reported_and_retried`,
//!   `silent::withheld_responses_are_reported_as_unanswered`.
//! * PUBACK 0x87 and 0x10 are reported; 0x10 silences a registration:
//!   `suite::refused_publishes_are_told_apart`,
//!   `silent::notification_without_subscribers_silences_the_registration`,
//!   `real::nothing_is_published_for_silenced_registrations`.
//! * Acknowledgements follow the responses, in order of arrival:
//!   `acks::acknowledgements_follow_the_responses_in_order_of_arrival`.
//! * A request redelivered after a crash gets the first response:
//!   `acks::redelivered_request_gets_the_first_response`.
//! * A duplicate without DUP has one effect and the same response:
//!   `real::duplicate_request_has_one_effect_and_the_same_response`.
//! * Single requests are fast, and a broker that delays them is reported:
//!   `silent::broker_that_delays_packets_is_reported`.
//! * Of two stores with one client id the older one ends, even if the broker closes connections
//!   without a reason: `takeover`.
//! * A takeover is final; other disconnects are not: `suite::takeover_ends_the_link`,
//!   `suite::other_disconnects_are_followed_by_a_connection`.

mod acks;
mod conformance;
mod deployed;
mod faults;
mod real;
mod silent;
mod suite;
mod takeover;
#[cfg(feature = "tls")]
mod tls;

use statestore_rumqttc::{Options, RumqttcLink, StoreService};
use statestore_testkit::brokers::scripted::Scripted;

/// A store without claims, so that scripts need no retained messages.
fn store(broker: &Scripted, change: impl FnOnce(Options) -> Options) -> StoreService {
    let options = change(broker.options("statestore"));
    StoreService::builder().spawn(RumqttcLink::for_store(options).without_claim())
}
