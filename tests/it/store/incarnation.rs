//! A store with an incarnation, a random id of one run, reports it only to requests that ask for
//! it.

use statestore_proto::message::Condition;
use statestore_proto::store::StoreConfig;
use statestore_proto::transport::Transmit;
use statestore_testkit::machines::request::StoreRequest;

use super::{Rig, get, set, set_if, watch};

const TEXT: &str = "000000000000002a";

fn with_incarnation() -> Rig {
    Rig::with(StoreConfig::new(7).incarnation(42))
}

fn asking_for_incarnation(mut ask: StoreRequest) -> StoreRequest {
    ask.incarnation = Some(String::new());
    ask
}

/// The incarnation in each PUBLISH that a request causes: notifications first, the reply last.
fn incarnations(rig: &mut Rig, ask: &StoreRequest) -> Vec<Option<String>> {
    ask.submit_to(rig.now(), &mut rig.store);
    let incarnation = |transmit| match transmit {
        Transmit::Publish(publish) => {
            let mut all = publish.user_properties();
            let property = all.find(|(name, _)| *name == "statestore-incarnation");
            Some(property.map(|(_, value)| value.to_string()))
        }
        _ => None,
    };
    std::iter::from_fn(|| rig.store.poll_transmit()).filter_map(incarnation).collect()
}

/// Requests with every kind of reply: applied, found, refused, undecodable, uncorrelated.
fn requests(rig: &mut Rig) -> Vec<StoreRequest> {
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
fn reply_contains_the_incarnation_if_the_request_has_its_property() {
    let mut rig = with_incarnation();
    for ask in requests(&mut rig) {
        assert_eq!(incarnations(&mut rig, &ask), [None], "{ask:?}");
    }
    for ask in requests(&mut rig).into_iter().map(asking_for_incarnation) {
        for _ in 0..2 {
            assert_eq!(
                incarnations(&mut rig, &ask),
                [Some(TEXT.into())],
                "duplicates too: {ask:?}"
            );
        }
    }
    let mut ask = rig.ask("c", &get("k"));
    ask.incarnation = Some("whatever".into());
    assert_eq!(
        incarnations(&mut rig, &ask),
        [Some(TEXT.into())],
        "the value of the property is ignored"
    );
}

#[test]
fn store_without_an_incarnation_reports_none() {
    let mut rig = Rig::new();
    for ask in requests(&mut rig).into_iter().map(asking_for_incarnation) {
        assert_eq!(incarnations(&mut rig, &ask), [None], "{ask:?}");
    }
}

#[test]
fn notifications_contain_the_incarnation_if_the_keynotify_had_its_property() {
    let mut rig = with_incarnation();
    let first = rig.ask("a", &watch("k"));
    let second = asking_for_incarnation(rig.ask("b", &watch("k")));
    incarnations(&mut rig, &first);
    incarnations(&mut rig, &second);
    let write = rig.ask("c", &set("k", "v"));
    let text = || Some(TEXT.to_owned());
    assert_eq!(incarnations(&mut rig, &write), [None, text(), None]);
    // The last registration of a client decides.
    let first = asking_for_incarnation(rig.ask("a", &watch("k")));
    let second = rig.ask("b", &watch("k"));
    incarnations(&mut rig, &first);
    incarnations(&mut rig, &second);
    let write = asking_for_incarnation(rig.ask("c", &set("k", "w")));
    assert_eq!(incarnations(&mut rig, &write), [text(), None, text()]);
}
