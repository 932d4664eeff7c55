//! A second store with the same client id.

use statestore_tests::packets::Packet;
use statestore_tests::raw::{Ask, array};
use statestore_tests::scripted::{Scripted, Welcome};
use statestore_tests::timely::timely;

use crate::place::{Form, Place, everywhere};
use crate::process::{Running, run, statestore};

everywhere!(a_standby_serves_and_the_first_ends, what_the_first_did_not_answer_the_standby_does);

/// A store beside the one of this place, with its client id.
fn standby(here: &Place) -> Running {
    let second = Running::start(&mut here.serve());
    assert!(second.line().contains("as client the store"), "it is ready");
    second
}

fn a_standby_serves_and_the_first_ends(form: Form) {
    if !form.has_broker_apart() {
        return form.skip("a broker is served by one store");
    }
    let Some(mut here) = form.start(&["--client-id", "the store"]) else { return };
    here.run(&["set", "k", "v"]).version();
    let mut serves = here.take_store();
    for _ in 0..2 {
        let second = standby(&here);
        let cause = "another store has taken over client id the store; to serve here";
        serves.end().fails(3, &[cause]);
        // It starts with nothing, and answers.
        here.run(&["get", "k"]).is(1, "");
        here.run(&["set", "k", "w"]).version();
        here.run(&["get", "k"]).is(0, "w");
        serves = second;
    }
    serves.signal("-TERM");
    serves.end().is(0, "");
}

fn what_the_first_did_not_answer_the_standby_does(form: Form) {
    if !form.has_broker_apart() {
        return form.skip("a broker is served by one store");
    }
    let Some(mut here) = form.start(&["--client-id", "the store"]) else { return };
    let first = here.take_store();
    let mut raw = here.raw("raw");
    // It has the request, and will see it.
    first.signal("-STOP");
    let ask = Ask::deployed("raw", array(&[b"SET", b"k", b"v"]));
    assert!(raw.deliver(&ask), "the broker has it");
    let second = standby(&here);
    assert_eq!(raw.reply().payload, &b"+OK\r\n"[..]);
    first.signal("-CONT");
    first.end().fails(3, &["another store has taken over client id the store"]);
    here.run(&["get", "k"]).is(0, "v");
    second.signal("-TERM");
    second.end().is(0, "");
}

/// A broker grants the first subscription, and then says that another has come with this client id.
#[tokio::test]
async fn a_store_that_is_told_of_a_takeover_ends() {
    timely(async {
        let broker = Scripted::start().await;
        let url = format!("mqtt://127.0.0.1:{}", broker.port());
        let serve = move || run(statestore().args(["serve", "--broker", &url]));
        let serves = tokio::task::spawn_blocking(serve);
        let mut peer = broker.welcome(Welcome::default()).await;
        let Some(Packet::Subscribe(subscribe)) = peer.read().await else { panic!("a SUBSCRIBE") };
        peer.grant(subscribe.pkid, 1).await;
        peer.disconnect(0x8e).await;
        let ended = serves.await.expect("it ends");
        assert_eq!(ended.code, Some(3), "{ended:?}");
        let cause = "disconnected by the broker: session taken over (0x8e)";
        assert!(ended.err.contains(cause), "{ended:?}");
    })
    .await;
}
