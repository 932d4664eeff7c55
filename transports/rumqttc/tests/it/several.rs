//! Several addresses of one broker.

use statestore_rumqttc::{Backoff, Options, StateStore, connect_with};
use statestore_tests::several;
use statestore_tests::timely::timely;

fn client(options: Options, pauses: Backoff) -> StateStore {
    connect_with(options, |builder| builder.backoff(pauses)).expect("a client id")
}

#[tokio::test]
async fn the_first_that_lets_in_is_used() {
    timely(several::the_first_that_lets_in_is_used(client)).await;
}

#[tokio::test]
async fn a_lost_connection_moves_over_and_back() {
    timely(several::a_lost_connection_moves_over_and_back(client)).await;
}

#[tokio::test]
async fn who_is_sent_away_goes_to_the_next() {
    timely(several::who_is_sent_away_goes_to_the_next(client)).await;
}

#[tokio::test]
async fn a_wrong_password_is_the_end() {
    timely(several::a_wrong_password_is_the_end(client)).await;
}

#[tokio::test]
async fn when_there_is_none_each_is_named() {
    timely(several::when_there_is_none_each_is_named(client)).await;
}
