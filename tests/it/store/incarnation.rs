//! A store that was given an incarnation tells it to those who ask, and to nobody else.

use statestore_proto::message::Condition;
use statestore_proto::mqtt::Transmit;
use statestore_proto::store::StoreConfig;
use statestore_tests::ask::Ask;

use super::{Rig, get, set, set_if, watch};

const TEXT: &str = "000000000000002a";

fn named() -> Rig {
    Rig::with(StoreConfig::new(7).incarnation(42))
}

fn asking(mut ask: Ask) -> Ask {
    ask.incarnation = Some(String::new());
    ask
}

/// What each PUBLISH says that a request causes: notifications first, the reply last.
fn said(rig: &mut Rig, ask: &Ask) -> Vec<Option<String>> {
    ask.hand_to(rig.now(), &mut rig.store);
    let said = |transmit| match transmit {
        Transmit::Publish(publish) => {
            let mut all = publish.user_properties();
            let said = all.find(|(name, _)| *name == "statestore-incarnation");
            Some(said.map(|(_, value)| value.to_string()))
        }
        _ => None,
    };
    std::iter::from_fn(|| rig.store.poll_transmit()).filter_map(said).collect()
}

/// Requests of every kind of answer: applied, found, refused, unreadable, without correlation data.
fn requests(rig: &mut Rig) -> Vec<Ask> {
    let mut no_timestamp = rig.ask("c", &set("k", "w"));
    no_timestamp.timestamp = None;
    let mut unreadable = rig.ask("c", &get("k"));
    unreadable.payload = "nonsense".into();
    let mut uncorrelated = rig.ask("c", &get("k"));
    uncorrelated.correlation = None;
    vec![
        rig.ask("c", &set("k", "v")),
        rig.ask("c", &get("k")),
        rig.ask("c", &set_if("k", "w", Condition::IfAbsent, 0)),
        no_timestamp,
        unreadable,
        uncorrelated,
    ]
}

#[test]
fn every_reply_to_a_request_that_asks_says_it_and_no_other() {
    let mut rig = named();
    for ask in requests(&mut rig) {
        assert_eq!(said(&mut rig, &ask), [None], "{ask:?}");
    }
    for ask in requests(&mut rig).into_iter().map(asking) {
        for _ in 0..2 {
            assert_eq!(said(&mut rig, &ask), [Some(TEXT.into())], "delivered again too: {ask:?}");
        }
    }
    let mut ask = rig.ask("c", &get("k"));
    ask.incarnation = Some("whatever".into());
    assert_eq!(said(&mut rig, &ask), [Some(TEXT.into())], "asking is all that it is there for");
}

#[test]
fn a_store_without_one_says_nothing() {
    let mut rig = Rig::new();
    for ask in requests(&mut rig).into_iter().map(asking) {
        assert_eq!(said(&mut rig, &ask), [None], "{ask:?}");
    }
}

#[test]
fn notifications_say_it_where_the_registration_asked() {
    let mut rig = named();
    let first = rig.ask("a", &watch("k"));
    let second = asking(rig.ask("b", &watch("k")));
    said(&mut rig, &first);
    said(&mut rig, &second);
    let write = rig.ask("c", &set("k", "v"));
    let text = || Some(TEXT.to_owned());
    assert_eq!(said(&mut rig, &write), [None, text(), None]);
    // The last registration of a client counts.
    let first = asking(rig.ask("a", &watch("k")));
    let second = rig.ask("b", &watch("k"));
    said(&mut rig, &first);
    said(&mut rig, &second);
    let write = asking(rig.ask("c", &set("k", "w")));
    assert_eq!(said(&mut rig, &write), [text(), None, text()]);
}
