//! Verbs, methods, types of keys, keys and principals: each combination.

use statestore_policy::{Action, Policy, Principal};

#[test]
fn each_combination_is_decided_as_the_table_says() {
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
        let document = format!(
            "rules: [{{principals: {{usernames: [ann]}}, \
             stateStoreResources: [{{method: {method}, keyType: {key_type}, keys: [{own}]}}]}}]"
        );
        let policy = Policy::parse(&document).unwrap();
        let name = if who == "own" { "ann" } else { "bob" };
        let principal = Principal { client_id: "x", user_name: Some(name), attributes: &[] };
        let key: &[u8] = if key == "matching" { b"rooms/1/lux" } else { b"rooms/1/sound" };
        let action = match verb {
            "GET" | "KEYNOTIFY" => Action::Read(key),
            _ => Action::Write(key),
        };
        let decision = policy.decide(&principal, &action);
        assert_eq!(decision.is_allowed(), expected == "allow", "{line}: {decision}");
        count += 1;
    }
    assert_eq!(count, 180);
}
