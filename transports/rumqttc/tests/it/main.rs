//! The link against a scripted broker, and against mosquitto where it is installed.
//!
//! What MQTT libraries and brokers were seen to get wrong, and the test that keeps each from coming back:
//!
//! | Case | Test |
//! |---|---|
//! | more requests than any queue holds, before and after the connection, do not stall | `faults::requests_beyond_every_queue_do_not_stall`, `faults::small_queues_do_not_stall` |
//! | large replies arrive; what is larger than the broker takes is refused here and the connection stays | `real::binary_keys_and_large_values_come_back`, `faults::what_the_broker_does_not_take_is_not_sent` |
//! | requests in flight end when the broker dies, and none hangs | `real::requests_end_when_the_broker_dies`, `faults::requests_that_wait_in_every_queue_end_with_the_connection` |
//! | the next connection may allow fewer in flight | `faults::requests_of_a_lost_connection_end_and_the_next_one_may_allow_less` |
//! | a refused subscription, and one that is granted and stays silent, are told | `faults::a_refused_subscription_keeps_requests_back`, `silent::answers_that_the_broker_withholds_are_told_as_such` |
//! | PUBACK 0x87 and 0x10 are told; 0x10 ends a watch | `faults::refused_publishes_are_told_apart`, `silent::a_notification_that_reaches_nobody_ends_the_watch` |
//! | acknowledgements in order of arrival, after the answers; a crash between answer and acknowledgement | `acks::acknowledgements_follow_the_answers_in_order_of_arrival`, `acks::a_request_that_comes_again_gets_the_same_answer` |
//! | a duplicate without DUP has one effect and the same answer | `real::a_repeated_request_has_one_effect_and_one_answer` |
//! | single requests are fast, and a broker that delays them is told | `silent::a_broker_that_holds_packets_back_is_told_as_such` |
//! | of two stores with one client id the older ends, on a broker that does not say why it closes a connection | `takeover` |
//! | a takeover is the end; other reasons to be disconnected are not | `faults::a_takeover_is_the_end`, `faults::other_disconnects_are_followed_by_a_new_connection` |

mod acks;
mod conformance;
mod deployed;
mod faults;
mod real;
mod requests;
mod several;
mod silent;
mod takeover;
#[cfg(feature = "tls")]
mod tls;

use statestore_rumqttc::{Options, RumqttcLink, StoreService};
use statestore_tests::scripted::Scripted;

/// A store without claims: nothing is retained by a scripted broker, and scripts are easier to read.
fn store(broker: &Scripted, change: impl FnOnce(Options) -> Options) -> StoreService {
    let options = change(broker.options("statestore"));
    StoreService::builder().spawn(RumqttcLink::for_store(options).without_claim())
}
