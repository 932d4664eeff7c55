//! Writes: conditions, versions, fences, expiry and quotas.

use statestore_models::machines::request::{Sent, StoreRequest};
use statestore_proto::limits::StoreLimits;
use statestore_proto::message::{Condition, Operand, Refusal};
use statestore_proto::time::{Instant, Now, UnixTime};

use super::{EPOCH, OK, Rig, del, error, get, set, set_if, vdel, version, watch};

const ABSENT: &str = r"$-1\r\n";
const NOT_APPLIED: &str = r":-1\r\n";

#[test]
fn each_reply_carries_the_version_of_its_value() {
    let mut rig = Rig::new();
    let mut reply = |command| {
        let request = rig.request("c", &command);
        rig.reply(&request)
    };
    let (first, second) = (Some(version(0, 1)), Some(version(0, 2)));
    assert_eq!(reply(get("k")), (ABSENT.into(), None));
    assert_eq!(reply(set("k", "a")), (OK.into(), first.clone()));
    assert_eq!(reply(get("k")), (r"$1\r\na\r\n".into(), first.clone()));
    assert_eq!(reply(set_if("k", "b", Condition::IfAbsent, 0)), (NOT_APPLIED.into(), first));
    assert_eq!(reply(set("k", "")), (OK.into(), second.clone()));
    assert_eq!(reply(get("k")), (r"$0\r\n\r\n".into(), second.clone()));
    assert_eq!(reply(vdel("k", "b")), (NOT_APPLIED.into(), second.clone()));
    assert_eq!(reply(del("k")), (r":1\r\n".into(), second));
    assert_eq!(reply(del("k")), (r":0\r\n".into(), None));
    assert_eq!(reply(vdel("k", "b")), (r":0\r\n".into(), None));
    assert_eq!(reply(watch("k")), (OK.into(), None));
}

#[test]
fn set_whose_condition_fails_is_not_applied() {
    let mut rig = Rig::new();
    let to = |operand: &'static str| {
        Condition::IfAbsentOrEqualTo(Operand::new(operand.as_bytes()).unwrap())
    };
    for (value, condition, expected) in [
        ("me", Condition::IfAbsentOrEqual, OK),
        ("me", Condition::IfAbsentOrEqual, OK),
        ("you", Condition::IfAbsentOrEqual, NOT_APPLIED),
        ("you", to("him"), NOT_APPLIED),
        ("you", to("me"), OK),
        ("me", Condition::IfAbsent, NOT_APPLIED),
    ] {
        assert_eq!(rig.answer("c", &set_if("k", value, condition, 0)), expected, "{value}");
    }
    assert_eq!(rig.answer("c", &get("k")), r"$3\r\nyou\r\n");
}

#[test]
fn timestamps_are_checked_on_set_and_ignored_on_get() {
    let ahead = |millis| Some(format!("{}:0:c", EPOCH + millis));
    let skew = "the request timestamp is too far in the future; ensure that the client and broker system clocks are synchronized";
    let token_skew = "the request fencing token timestamp is too far in the future; ensure that the client and broker system clocks are synchronized";
    for (timestamp, token, text) in [
        (None, None, "missing timestamp"),
        (Some("soon".into()), None, "malformed timestamp"),
        (Some("1:1:".into()), None, "malformed timestamp"),
        (ahead(60_001), None, skew),
        (ahead(60_001), Some("soon".into()), skew),
        (ahead(0), Some("1:+1:x".into()), "malformed timestamp"),
        (ahead(0), ahead(60_001), token_skew),
    ] {
        let mut rig = Rig::new();
        let mut request = rig.request("c", &set("k", "v"));
        (request.timestamp, request.token) = (timestamp, token);
        assert_eq!(rig.reply(&request), error(text), "{request:?}");
        assert_eq!(rig.store.len(), 0);
        request.payload = get("k").encode().into();
        assert_eq!(rig.reply(&request).0, ABSENT);
        // A refused request has not moved the clock.
        let request = rig.request("c", &set("k", "v"));
        assert_eq!(rig.reply(&request).1, Some(version(0, 1)));
    }
}

#[test]
fn version_is_greater_than_the_timestamp_and_not_lower_than_the_token() {
    let mut rig = Rig::new();
    let mut request = rig.request("c", &set("k", "v"));
    request.timestamp = Some(format!("{}:7:c", EPOCH + 60_000));
    assert_eq!(rig.reply(&request).1, Some(version(60_000, 8)));
    let mut rig = Rig::new();
    let mut request = rig.request("c", &set("k", "v"));
    request.token = Some(format!("{}:3:StateStore", EPOCH + 500));
    assert_eq!(rig.reply(&request).1, Some(version(500, 4)));
    let request = rig.request("c", &set("other", "v"));
    assert_eq!(
        rig.reply(&request).1,
        Some(version(500, 5)),
        "and greater than every earlier version"
    );
}

#[test]
fn exhausted_counter_advances_the_wall_time() {
    let mut rig = Rig::new();
    let mut request = rig.request("c", &set("k", "v"));
    request.timestamp = Some(format!("{EPOCH}:{}:c", i32::MAX));
    assert_eq!(rig.reply(&request).1, Some(version(1, 0)));
}

/// A timestamp at the drift limit with the last counter but one, as `__ts` or as `__ft`.
#[test]
fn timestamp_at_the_drift_limit_does_not_refuse_other_clients() {
    for as_token in [false, true] {
        let mut rig = Rig::new();
        let mut hostile = rig.request("h", &set("x", "1"));
        let stamp = Some(format!("{}:{}:h", EPOCH + 60_000, i32::MAX - 1));
        *(if as_token { &mut hostile.token } else { &mut hostile.timestamp }) = stamp;
        assert_eq!(rig.reply(&hostile), (OK.into(), Some(version(60_000, i32::MAX as u64))));
        let honest = rig.request("honest", &set("k", "v"));
        assert_eq!(rig.reply(&honest), (OK.into(), Some(version(60_001, 0))));
        hostile.correlation = Some(b"another".to_vec());
        let again = rig.reply(&hostile);
        assert_eq!(
            again,
            (OK.into(), Some(version(60_001, 1))),
            "one step past the limit, not more"
        );
    }
}

/// A client whose clock is a minute ahead, then a store whose wall clock is set back.
#[test]
fn wall_clock_set_back_does_not_refuse_honest_clients() {
    for back in [5, 60_001, 86_400_000] {
        let mut rig = Rig::new();
        let mut fast = rig.request("fast", &set("lock", "fast"));
        fast.timestamp = Some(format!("{}:0:fast", EPOCH + 60_000));
        let token = rig.reply(&fast).1;
        assert_eq!(token, Some(version(60_000, 1)));
        let now = Now::new(Instant::from_millis(1), UnixTime::from_millis(EPOCH - back));
        let reply = |rig: &mut Rig, request: &StoreRequest| {
            request.submit_to(now, &mut rig.store);
            match Sent::drain(&mut rig.store).first() {
                Some(Sent::Reply { payload, version, .. }) => (payload.clone(), version.clone()),
                other => panic!("{other:?}"),
            }
        };
        let mut request = rig.request("honest", &set("k", "v"));
        request.timestamp = Some(format!("{}:0:honest", EPOCH - back));
        assert_eq!(reply(&mut rig, &request), (OK.into(), Some(version(60_000, 2))));
        // The token was issued by this store, and the client's clock has followed the store's.
        let mut guarded = rig.request("fast", &set("guarded", "v"));
        guarded.token = token;
        guarded.timestamp = Some(format!("{}:9:fast", EPOCH + 60_000));
        assert_eq!(reply(&mut rig, &guarded), (OK.into(), Some(version(60_000, 10))));
        // But no client advances the clock further.
        let mut hostile = rig.request("h", &set("x", "1"));
        hostile.timestamp = Some(format!("{}:0:h", EPOCH + 60_001));
        assert_eq!(reply(&mut rig, &hostile), error(Refusal::TimestampSkew.text()));
        hostile.timestamp = Some(format!("{}:{}:h", EPOCH + 60_000, i32::MAX - 1));
        assert_eq!(reply(&mut rig, &hostile), error(Refusal::TimestampSkew.text()));
    }
}

#[test]
fn timestamp_with_a_node_id_of_more_than_256_bytes_is_malformed() {
    let mut rig = Rig::new();
    for (len, expected) in [(256, OK.to_owned()), (257, error("malformed timestamp").0)] {
        let node = "n".repeat(len);
        let mut request = rig.request("c", &set("k", "v"));
        request.timestamp = Some(format!("{EPOCH}:0:{node}"));
        assert_eq!(rig.reply(&request).0, expected);
        let mut request = rig.request("c", &set("fenced", "v"));
        request.token = Some(format!("{EPOCH}:0:{node}"));
        assert_eq!(rig.reply(&request).0, expected);
    }
}

#[test]
fn fence_refuses_writes_with_an_older_token_or_none() {
    let mut rig = Rig::new();
    let mut write = |command, token: Option<u64>| {
        let mut request = rig.request("c", &command);
        request.token = token.map(|token| format!("{token}:0:lock"));
        rig.reply(&request)
    };
    let required = error("a fencing token is required for this request");
    let lower = error(
        "the request fencing token is a lower version than the fencing token protecting the resource",
    );
    assert_eq!(write(set("k", "v"), None).0, OK);
    assert_eq!(write(set("k", "v"), Some(5)).0, OK);
    for command in [set("k", "w"), del("k"), vdel("k", "v")] {
        assert_eq!(write(command, None), required);
        assert_eq!(write(command, Some(4)), lower);
    }
    assert_eq!(write(set("k", "v"), Some(5)).0, OK);
    assert_eq!(write(set("k", "v"), Some(7)).0, OK);
    assert_eq!(write(set("k", "v"), Some(6)), lower);
    // Refused by its condition, so its token is not stored. Reads need no token.
    assert_eq!(write(set_if("k", "w", Condition::IfAbsent, 0), Some(9)).0, NOT_APPLIED);
    assert_eq!(write(get("k"), None).0, r"$1\r\nv\r\n");
    assert_eq!(write(del("k"), Some(8)).0, r":1\r\n");
    assert_eq!(write(set("k", "v"), None).0, OK, "the fence is deleted with the key");
}

#[test]
fn expired_key_is_absent_from_exactly_that_millisecond() {
    let mut rig = Rig::new();
    let mut request = rig.request("c", &set_if("k", "v", Condition::Always, 100));
    request.token = Some("5:0:lock".into());
    rig.reply(&request);
    rig.millis = 99;
    assert_eq!(rig.answer("c", &get("k")), r"$1\r\nv\r\n");
    assert_eq!(rig.store.iter(rig.now()).count(), 1);
    rig.millis = 100;
    assert_eq!(
        (rig.store.get(rig.now(), b"k").is_none(), rig.store.iter(rig.now()).count()),
        (true, 0)
    );
    assert_eq!(
        rig.answer("c", &set_if("k", "w", Condition::IfAbsent, 0)),
        OK,
        "its fence has expired too"
    );
}

#[test]
fn set_without_px_removes_the_expiry_and_set_with_px_renews_it() {
    let mut rig = Rig::new();
    rig.answer("c", &set_if("k", "v", Condition::Always, 100));
    rig.millis = 50;
    rig.answer("c", &set_if("k", "v", Condition::Always, 100));
    assert_eq!(rig.store.poll_timeout(), Some(Instant::from_millis(150)));
    rig.answer("c", &set("k", "v"));
    assert_eq!(rig.store.poll_timeout(), None);
    rig.millis = 100_000;
    rig.timer();
    assert_eq!(rig.answer("c", &get("k")), r"$1\r\nv\r\n");
}

#[test]
fn quota_refuses_new_keys_and_growth_but_not_replacement() {
    let quota = error("the quota has been exceeded").0;
    let mut rig =
        Rig::limited(StoreLimits { keys_max: 2, client_percent: 100, ..StoreLimits::default() });
    for (command, expected) in [
        (set("a", "v"), OK),
        (set("b", "v"), OK),
        (set("c", "v"), quota.as_str()),
        (set("a", "longer than before"), OK),
        (del("a"), r":1\r\n"),
        (set("c", "v"), OK),
    ] {
        assert_eq!(rig.answer("c", &command), expected, "{command:?}");
    }
    let mut rig = Rig::limited(StoreLimits {
        bytes_max: 10,
        key_bytes_max: 4,
        client_percent: 100,
        ..StoreLimits::default()
    });
    for (command, expected) in [
        (set("long!", ""), quota.as_str()),
        (set("a", "12345678"), OK),
        (set("b", "1"), quota.as_str()),
        (set("a", "1234567890"), quota.as_str()),
        (set("a", "123456789"), OK),
        (set("a", "1234567"), OK),
        (set("b", "1"), OK),
    ] {
        assert_eq!(rig.answer("c", &command), expected, "{command:?}");
    }
    let mut rig = Rig::limited(StoreLimits { value_bytes_max: 4, ..StoreLimits::default() });
    for (command, expected) in [
        (set("a", "1234"), OK),
        (set("a", "12345"), quota.as_str()),
        (set("b", "12345"), quota.as_str()),
        (set("a", ""), OK),
    ] {
        assert_eq!(rig.answer("c", &command), expected, "{command:?}");
    }
}

#[test]
fn expired_keys_do_not_count_toward_the_quota() {
    let mut rig =
        Rig::limited(StoreLimits { keys_max: 1, outgoing_max: 0, ..StoreLimits::default() });
    rig.answer("watcher", &watch("a"));
    rig.answer("c", &set_if("a", "v", Condition::Always, 100));
    rig.millis = 99;
    assert_eq!(rig.answer("c", &set("b", "v")), error("the quota has been exceeded").0);
    rig.millis = 100;
    let request = rig.request("c", &set("b", "v"));
    let (sent, reply) = rig.all(&request);
    assert_eq!((sent.len(), reply.0.as_str()), (1, OK));
}
