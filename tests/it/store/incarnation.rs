//! A store with an incarnation, a random id of one run, reports it only to requests that ask for
//! it.

use statestore_models::machines::request::StoreRequest;
use statestore_proto::message::Condition;
use statestore_proto::store::StoreConfig;
use statestore_proto::transport::Transmit;

use super::{Rig, get, set, set_if, watch};

const TEXT: &str = "000000000000002a";

fn with_incarnation() -> Rig {
    Rig::with(StoreConfig::new(7).incarnation(42))
}

fn requesting_incarnation(mut request: StoreRequest) -> StoreRequest {
    request.incarnation = Some(String::new());
    request
}

/// The incarnation in each PUBLISH that a request causes: notifications first, the reply last.
fn incarnations(rig: &mut Rig, request: &StoreRequest) -> Vec<Option<String>> {
    request.submit_to(rig.now(), &mut rig.store);
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
    let mut no_timestamp = rig.request("c", &set("k", "w"));
    no_timestamp.timestamp = None;
    let mut unreadable = rig.request("c", &get("k"));
    unreadable.payload = "nonsense".into();
    let mut uncorrelated = rig.request("c", &get("k"));
    uncorrelated.correlation = None;
    vec![
        rig.request("c", &set("k", "v")),
        rig.request("c", &get("k")),
        rig.request("c", &set_if("k", "w", Condition::IfAbsent, 0)),
        no_timestamp,
        unreadable,
        uncorrelated,
    ]
}

#[test]
fn reply_contains_the_incarnation_if_the_request_has_its_property() {
    let mut rig = with_incarnation();
    for request in requests(&mut rig) {
        assert_eq!(incarnations(&mut rig, &request), [None], "{request:?}");
    }
    for request in requests(&mut rig).into_iter().map(requesting_incarnation) {
        for _ in 0..2 {
            assert_eq!(
                incarnations(&mut rig, &request),
                [Some(TEXT.into())],
                "duplicates too: {request:?}"
            );
        }
    }
    let mut request = rig.request("c", &get("k"));
    request.incarnation = Some("whatever".into());
    assert_eq!(
        incarnations(&mut rig, &request),
        [Some(TEXT.into())],
        "the value of the property is ignored"
    );
}

#[test]
fn store_without_an_incarnation_reports_none() {
    let mut rig = Rig::new();
    for request in requests(&mut rig).into_iter().map(requesting_incarnation) {
        assert_eq!(incarnations(&mut rig, &request), [None], "{request:?}");
    }
}

#[test]
fn notifications_contain_the_incarnation_if_the_keynotify_had_its_property() {
    let mut rig = with_incarnation();
    let first = rig.request("a", &watch("k"));
    let second = requesting_incarnation(rig.request("b", &watch("k")));
    incarnations(&mut rig, &first);
    incarnations(&mut rig, &second);
    let write = rig.request("c", &set("k", "v"));
    let text = || Some(TEXT.to_owned());
    assert_eq!(incarnations(&mut rig, &write), [None, text(), None]);
    // The last registration of a client decides.
    let first = requesting_incarnation(rig.request("a", &watch("k")));
    let second = rig.request("b", &watch("k"));
    incarnations(&mut rig, &first);
    incarnations(&mut rig, &second);
    let write = requesting_incarnation(rig.request("c", &set("k", "w")));
    assert_eq!(incarnations(&mut rig, &write), [text(), None, text()]);
}
