//! The detail of a refusal, as returned to the caller and, if configured, to the requester.
//! Every test that submits a request through `statestore_models::machines::request` checks that
//! refusals, and only refusals, have a detail.

use bytes::Bytes;
use statestore_models::machines::request::StoreRequest;
use statestore_proto::limits::StoreLimits;
use statestore_proto::message::property;
use statestore_proto::store::{Access, RequestOutcome, StoreConfig};
use statestore_proto::transport::{Qos, Transmit};

use super::{EPOCH, Rig, get, set, watch};

/// The detail that the store returns, and the reason in its reply.
fn details(rig: &mut Rig, request: &StoreRequest) -> (Option<String>, Option<String>) {
    let own = match request.submit_to(rig.now(), &mut rig.store).outcome {
        RequestOutcome::Refused(refused) => Some(refused.to_string()),
        RequestOutcome::Dropped(reason) => Some(reason.to_string()),
        _ => None,
    };
    let mut replied = None;
    while let Some(transmit) = rig.store.poll_transmit() {
        let Transmit::Publish(publish) = transmit else { continue };
        let mut reasons = publish.user_properties().filter(|(name, _)| *name == property::REASON);
        replied = replied.or_else(|| reasons.next().map(|(_, text)| text.to_string()));
    }
    (own, replied)
}

fn explaining(limits: StoreLimits) -> Rig {
    Rig::with(StoreConfig::new(7).limits(limits).explain(true))
}

/// A change to a request, and the detail expected.
type Case = (fn(&mut StoreRequest), &'static str);

#[test]
fn each_refusal_names_the_rule_and_the_measured_values() {
    let mut rig = explaining(StoreLimits::default());
    let mut fenced = rig.request("c", &set("fenced", "v"));
    fenced.token = Some(format!("{EPOCH}:7:lock"));
    assert_eq!(details(&mut rig, &fenced), (None, None));
    let cases: [Case; 12] = [
        (
            |request| request.payload = Bytes::from_static(b"*1\r\n$3\r\nFLY\r\n"),
            "the payload is malformed: unknown command at byte 8",
        ),
        (
            |request| request.payload = Bytes::from_static(b"*1\r\n$3\r\nGET\r\n"),
            "the payload is malformed: wrong number of arguments at byte ",
        ),
        (|request| request.correlation = None, "the request has no correlation data"),
        (|request| request.qos = Qos::AtMostOnce, "the request was not published with QoS 1"),
        (
            |request| request.source = Some("other".into()),
            "__srcId differs from the client id of the sender",
        ),
        (|request| request.timestamp = None, "the request has no __ts"),
        (|request| request.timestamp = Some("soon".into()), "__ts is malformed: "),
        (|request| request.token = Some("1:x:c".into()), "__ft is malformed: "),
        (
            |request| request.timestamp = Some(format!("{}:0:c", EPOCH + 61_234)),
            "__ts is 61234 ms ahead of the store's clock (limit 60000 ms)",
        ),
        (
            |request| request.token = Some(format!("{}:0:c", EPOCH + 60_001)),
            "__ft is 60001 ms ahead of the store's clock (limit 60000 ms)",
        ),
        (|_| {}, "the key is fenced by 1696374425000:7:lock and the request has no __ft"),
        (
            |request| request.token = Some(format!("{EPOCH}:6:a\nb")),
            "the key is fenced by 1696374425000:7:lock and __ft is 1696374425000:6:a\u{fffd}b",
        ),
    ];
    for (change, expected) in cases {
        let mut request = rig.request("c", &set("fenced", "secret"));
        change(&mut request);
        let (own, replied) = details(&mut rig, &request);
        let own = own.expect(expected);
        assert!(own.starts_with(expected), "{own:?} and not {expected:?}");
        assert!(!own.contains("secret") && own.len() < 256, "{own}");
        assert_eq!(replied.as_ref(), Some(&own));
    }
    for (change, expected) in [
        (
            (|request| request.response_topic = None) as fn(&mut StoreRequest),
            "the request has no response topic",
        ),
        (
            |request| request.response_topic = Some("$SYS/x".into()),
            "the response topic is forbidden: ",
        ),
        (
            |request| request.topic = "elsewhere".into(),
            "the message is not a request, or it is retained",
        ),
    ] {
        let mut request = rig.request("c", &set("k", "v"));
        change(&mut request);
        let (own, replied) = details(&mut rig, &request);
        assert!(own.as_ref().is_some_and(|own| own.starts_with(expected)), "{own:?}");
        assert_eq!(replied, None, "dropped requests get no reply");
    }
    let accepted = rig.request("c", &set("k", "v"));
    assert_eq!(details(&mut rig, &accepted), (None, None), "an accepted request clears the detail");
}

#[test]
fn exceeded_limit_is_named_with_the_needed_and_allowed_values() {
    let limits = StoreLimits {
        keys_max: 6,
        bytes_max: 100,
        key_bytes_max: 20,
        value_bytes_max: 60,
        registrations_max: 4,
        registration_bytes_max: 40,
        registrations_per_key_max: 2,
        client_percent: 50,
        ..StoreLimits::default()
    };
    let mut rig = explaining(limits);
    let (long, value, part) = ("k".repeat(21), "v".repeat(61), "v".repeat(45));
    let mut refused = |client: &str, command| {
        let request = rig.request(client, &command);
        let (own, replied) = details(&mut rig, &request);
        assert_eq!(own, replied);
        own
    };
    let limit = |text: &str| Some(text.to_owned());
    assert_eq!(refused("a", set(&long, "v")), limit("bytes of one key: 21 needed, 20 allowed"));
    assert_eq!(refused("a", set("k", &value)), limit("bytes of one value: 61 needed, 60 allowed"));
    assert_eq!(refused("a", set("1", &part)), None);
    let share = "bytes of the keys and values of one client: 52 needed, 50 allowed";
    assert_eq!(refused("a", set("2", "vvvvv")), limit(share));
    assert_eq!(refused("b", set("2", &part)), None);
    let all = "bytes of all keys and values: 138 needed, 100 allowed";
    assert_eq!(refused("c", set("3", &part)), limit(all));
    for key in ["3", "4", "5"] {
        assert_eq!(refused("c", set(key, "")), None);
    }
    assert_eq!(refused("c", set("6", "")), limit("keys of one client: 4 needed, 3 allowed"));
    assert_eq!(refused("d", set("6", "")), None);
    assert_eq!(refused("d", set("7", "")), limit("keys of all clients: 7 needed, 6 allowed"));
    assert_eq!(refused("a", watch(&long)), limit("bytes of one key: 21 needed, 20 allowed"));
    assert_eq!(refused("a", watch("1")), None);
    assert_eq!(refused("a", watch("2")), None);
    assert_eq!(refused("a", watch("3")), limit("registrations of one client: 3 needed, 2 allowed"));
    assert_eq!(refused("b", watch("1")), None);
    assert_eq!(refused("c", watch("1")), limit("registrations for one key: 3 needed, 2 allowed"));
    let share = "bytes of the registrations of one client: 21 needed, 20 allowed";
    assert_eq!(refused("b", watch("123456789012345678")), limit(share));
    assert_eq!(refused("b", watch("2")), None);
    assert_eq!(
        refused("c", watch("3")),
        limit("registrations of all clients: 5 needed, 4 allowed")
    );
}

#[test]
fn policy_refusal_names_the_denied_access() {
    let config = StoreConfig::new(7).explain(true);
    let allows = |access| access == Access::Write;
    let mut rig = Rig::with(config.authorizer(move |_, access, _| allows(access)));
    let request = rig.request("c", &get("k"));
    let no_read = "the policy does not allow this client to read the key".to_owned();
    assert_eq!(details(&mut rig, &request), (Some(no_read.clone()), Some(no_read)));
    let mut request = rig.request("c", &set("k", "v"));
    request.token = request.timestamp.clone();
    let (own, _) = details(&mut rig, &request);
    assert!(own.is_some_and(|own| own.ends_with("write the key with a fencing token")));
}

#[test]
fn reason_is_in_the_reply_only_if_configured_and_not_in_duplicates() {
    let refused = |rig: &mut Rig| {
        let mut request = rig.request("c", &set("k", "v"));
        request.timestamp = None;
        request
    };
    let mut silent = Rig::new();
    let request = refused(&mut silent);
    assert_eq!(details(&mut silent, &request), (Some("the request has no __ts".into()), None));
    let mut rig = explaining(StoreLimits::default());
    let request = refused(&mut rig);
    assert!(matches!(details(&mut rig, &request), (Some(_), Some(_))));
    assert_eq!(
        details(&mut rig, &request),
        (None, None),
        "a duplicate gets the reply without the reason"
    );
    let mut small = refused(&mut rig);
    small.packet_bytes_max = Some(160);
    let (own, replied) = details(&mut rig, &small);
    assert_eq!(
        (own.is_some(), replied),
        (true, None),
        "the packet limit leaves no space for the reason"
    );
}

#[test]
fn long_reason_in_a_reply_is_truncated() {
    let mut rig = explaining(StoreLimits::default());
    let node = "ü".repeat(128);
    let mut request = rig.request("c", &set("k", "v"));
    request.token = Some(format!("{EPOCH}:7:{node}"));
    assert_eq!(details(&mut rig, &request), (None, None));
    request = rig.request("c", &set("k", "w"));
    request.token = Some(format!("{EPOCH}:6:{node}"));
    let (own, replied) = details(&mut rig, &request);
    let (own, replied) = (own.expect("refused"), replied.expect("explained"));
    assert!(own.len() > 500 && own.starts_with(&replied), "{replied}");
    assert!((253..=property::REASON_BYTES_MAX).contains(&replied.len()), "{}", replied.len());
}

#[test]
fn error_with_the_text_of_its_cause_has_no_source() {
    let mut rig = explaining(StoreLimits::default());
    let mut requests = [rig.request("c", &set("k", "v")), rig.request("c", &set("k", "v"))];
    requests[0].payload = Bytes::from_static(b"*1\r\n$3\r\nFLY\r\n");
    requests[1].timestamp = Some("soon".into());
    for request in requests {
        let RequestOutcome::Refused(refused) = request.submit_to(rig.now(), &mut rig.store).outcome
        else {
            panic!("the request is refused")
        };
        assert!(std::error::Error::source(&refused).is_none(), "{refused} prints its cause");
    }
}
