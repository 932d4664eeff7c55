//! Every combination of verb, method, key type, key and principal.

use statestore_policy::{Action, Policy, Principal};
use statestore_proto::store::Access;
use statestore_proto::transport::Rights as _;

#[test]
fn every_combination_is_decided_as_in_the_table() {
    let table = include_str!("../decisions.txt");
    let mut count = 0;
    for line in table.lines().filter(|line| !line.starts_with('#')) {
        let [verb, method, key_type, key, who, expected] =
            line.split_whitespace().collect::<Vec<_>>()[..]
        else {
            panic!("{line}")
        };
        let own = match key_type {
            "Pattern" => "rooms/*/lux",
            "String" => "rooms/1/lux",
            "Binary" => "cm9vbXMvMS9sdXg=",
            other => panic!("{other}"),
        };
        let resource = |method| format!("{{method: {method}, keyType: {key_type}, keys: [{own}]}}");
        let resources: Vec<String> = method.split('+').map(resource).collect();
        let document = format!(
            "rules: [{{principals: {{usernames: [ann]}}, stateStoreResources: [{}]}}]",
            resources.join(", ")
        );
        let policy = Policy::parse(&document).unwrap();
        let name = if who == "own" { "ann" } else { "bob" };
        let principal = Principal { client_id: "x", user_name: Some(name), attributes: &[] };
        let key: &[u8] = if key == "matching" { b"rooms/1/lux" } else { b"rooms/1/sound" };
        let action = match verb {
            "GET" | "KEYNOTIFY" => Action::Read(key),
            "FENCE" => Action::Fence(key),
            _ => Action::Write(key),
        };
        let decision = policy.decide(&principal, &action);
        assert_eq!(decision.is_allowed(), expected == "allow", "{line}: {decision}");
        count += 1;
    }
    assert_eq!(count, 180 + 36 + 216);
}

/// With one `Fence` in the document, every principal needs a `Fence` for tokens, and only for
/// tokens.
#[test]
fn fencing_requires_a_fence_rule_if_the_document_has_one() {
    let document = "rules:
  - principals: {usernames: [ann, bob]}
    stateStoreResources:
      - {method: ReadWrite, keys: [shared, other]}
  - principals: {usernames: [ann]}
    stateStoreResources:
      - {method: Fence, keys: [shared, foreign]}";
    let without = document.replace("method: Fence", "method: Read");
    let (policy, without) = (Policy::parse(document).unwrap(), Policy::parse(&without).unwrap());
    for (user, action, expected, is_default) in [
        (
            "ann",
            Action::Fence(b"shared"),
            "allowed by line 7 (rule 2, resource 1 of stateStoreResources)",
            true,
        ),
        (
            "ann",
            Action::Fence(b"other"),
            "refused; line 4 (rule 1, resource 1 of stateStoreResources) has this key with \
             another method",
            true,
        ),
        (
            "ann",
            Action::Fence(b"foreign"),
            "refused; line 7 (rule 2, resource 1 of stateStoreResources) has this key with \
             another method",
            false,
        ),
        (
            "bob",
            Action::Fence(b"shared"),
            "refused; line 4 (rule 1, resource 1 of stateStoreResources) has this key with \
             another method",
            true,
        ),
        (
            "bob",
            Action::Write(b"shared"),
            "allowed by line 4 (rule 1, resource 1 of stateStoreResources)",
            true,
        ),
    ] {
        let principal = Principal { client_id: "x", user_name: Some(user), attributes: &[] };
        let decision = policy.decide(&principal, &action);
        assert_eq!(decision.to_string(), expected, "{user} {action:?}");
        assert_eq!(policy.rights(&principal).allow(&action), decision.is_allowed(), "{action:?}");
        assert_eq!(without.decide(&principal, &action).is_allowed(), is_default, "{action:?}");
        assert_eq!(without.rights(&principal).allow(&action), is_default, "{action:?}");
    }
    let ann = Principal { client_id: "x", user_name: Some("ann"), attributes: &[] };
    assert!(policy.rights(&ann).allow_key(Access::Fence, b"shared"));
    assert!(!policy.rights(&ann).allow_key(Access::Fence, b"other"));
}

#[test]
fn refusal_names_the_nearest_rule() {
    let policy = Policy::parse(
        "rules:
  - principals: {usernames: [bob]}
    stateStoreResources:
      - {method: Read, keys: [x]}
      - {method: Read, keys: [of-bob]}
  - principals: {usernames: [ann]}
    brokerResources:
      - {method: Publish, topics: [t]}
    stateStoreResources:
      - {method: Read, keys: [y, z]}
      - {method: Write, keys: [y]}
      - {method: Write, keys: [w]}",
    )
    .unwrap();
    assert_eq!((policy.len(), policy.is_empty()), (2, false));
    assert!(Policy::default().is_empty());
    let ann = Principal { client_id: "", user_name: Some("ann"), attributes: &[] };
    let carl = Principal { client_id: "", user_name: Some("carl"), attributes: &[] };
    for (principal, action, expected) in [
        (
            &ann,
            Action::Read(b"y"),
            "allowed by line 10 (rule 2, resource 1 of stateStoreResources)",
        ),
        (&ann, Action::Publish("t"), "allowed by line 8 (rule 2, resource 1 of brokerResources)"),
        (
            &ann,
            Action::Read(b"w"),
            "refused; line 12 (rule 2, resource 3 of stateStoreResources) has this key with \
             another method",
        ),
        (
            &ann,
            Action::Read(b"x"),
            "refused; line 10 (rule 2, resource 1 of stateStoreResources) allows it for other keys",
        ),
        (
            &ann,
            Action::Write(b"of-bob"),
            "refused; line 11 (rule 2, resource 2 of stateStoreResources) allows it for other keys",
        ),
        (
            &ann,
            Action::Publish("u"),
            "refused; line 8 (rule 2, resource 1 of brokerResources) allows it for other topics \
             or client ids",
        ),
        (
            &ann,
            Action::Connect,
            "refused; line 6 (rule 2) applies to this client, but allows other operations",
        ),
        (
            &carl,
            Action::Read(b"of-bob"),
            "refused; line 5 (rule 1, resource 2 of stateStoreResources) allows it for other clients",
        ),
        (&carl, Action::Read(b"v"), "refused; no rule applies to this client or to this operation"),
        (&carl, Action::Connect, "refused; no rule applies to this client or to this operation"),
    ] {
        assert_eq!(policy.decide(principal, &action).to_string(), expected, "{action:?}");
    }
}

#[test]
fn rights_decide_keys_and_name_client_ids() {
    let policy = Policy::parse(
        "rules:
  - principals: {usernames: [ann]}
    brokerResources:
      - {method: Connect}
      - {method: Connect, clientIds: [station-?]}
    stateStoreResources:
      - {method: Read, keys: [r]}
      - {method: Write, keys: [w]}",
    )
    .unwrap();
    let rights = |client_id| {
        policy.rights(&Principal { client_id, user_name: Some("ann"), attributes: &[] })
    };
    let own = rights("station-1");
    assert!(own.allow_key(Access::Read, b"r") && !own.allow_key(Access::Write, b"r"));
    assert!(own.allow_key(Access::Write, b"w") && !own.allow_key(Access::Read, b"w"));
    assert!(own.names_client_id() && own.allow(&Action::Connect));
    let other = rights("other");
    assert!(!other.names_client_id() && other.allow(&Action::Connect));
}

/// A decision that exceeds the limit of work is refused, even if a later pattern would allow the
/// action.
#[test]
fn decision_is_refused_when_its_work_exceeds_the_limit() {
    let slow: Vec<String> = (0..100).map(|at| format!("'*a*a*a*a*b{at}'")).collect();
    let document = format!(
        "rules: [{{principals: {{usernames: [ann]}}, stateStoreResources: [{{method: Read, keys: \
         [{}, '**']}}]}}]",
        slow.join(", ")
    );
    let policy = Policy::parse(&document).unwrap();
    let ann = Principal { client_id: "", user_name: Some("ann"), attributes: &[] };
    for (len, expected) in [(100, true), (60_000, false)] {
        let key = vec![b'a'; len];
        let action = Action::Read(&key);
        assert_eq!(policy.decide(&ann, &action).is_allowed(), expected, "{len}");
        assert_eq!(policy.rights(&ann).allow(&action), expected, "{len}");
    }
}
