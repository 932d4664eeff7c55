//! Likely mistakes are reported; a sound document causes no warnings.

use statestore_policy::{Names, Policy};

fn warnings(document: &str) -> Vec<String> {
    let policy = Policy::parse(document).unwrap_or_else(|error| panic!("{error}"));
    policy.warnings().iter().map(ToString::to_string).collect()
}

const REQUEST: &str = "statestore/v1/FA9AE35F-2F64-47CD-9BFF-08E2B32A0FE8/command/invoke";

fn sound(rules: &str) -> String {
    format!(
        "rules:
  - principals: {{usernames: [a, b]}}
    brokerResources:
      - {{method: Connect}}
      - {{method: Publish, topics: [{REQUEST}]}}
      - {{method: Subscribe, topics: ['clients/{{principal.clientId}}/#', 'clients/statestore/+/+/+/command/notify/+']}}
    stateStoreResources:
      - {{method: ReadWrite, keys: ['own/{{principal.username}}/*']}}
{rules}"
    )
}

#[test]
fn sound_document_has_no_warnings() {
    assert_eq!(warnings(&sound("")), [""; 0]);
}

#[test]
fn every_mistake_is_reported_at_its_line() {
    for (rules, expected) in [
        (
            "  - principals: {}\n    brokerResources: [{method: Connect}]",
            "line 9: the principals are empty",
        ),
        ("  - principals: {usernames: [c]}", "line 9: the rule has no resources"),
        (
            "  - principals: {clientIds: [c]}\n    stateStoreResources: [{method: Read, keys: \
             [x]}]",
            "line 9: the rule names client ids",
        ),
        (
            "  - principals: {usernames: [c]}\n    stateStoreResources: [{method: Read, keys: \
             ['*']}]",
            "line 10: a pattern of keys matches everything",
        ),
        (
            "  - principals: {usernames: [c]}\n    brokerResources: [{method: Subscribe, topics: \
             ['#']}]",
            "line 10: a topic filter matches everything",
        ),
        (
            "  - principals: {usernames: [c]}\n    stateStoreResources: [{method: Write, keys: \
             [x]}]",
            "line 10: Write without Read",
        ),
        (
            "  - principals: {usernames: [c]}\n    stateStoreResources: [{method: Fence, keys: \
             [x]}]",
            "line 10: Fence without Write",
        ),
        (
            "  - principals: {usernames: [b]}\n    stateStoreResources: [{method: Read, keys: \
             ['own/{principal.username}/*']}]",
            "line 10: allows nothing that line 8 does not allow",
        ),
        (
            "  - principals: {usernames: [b, c]}\n    brokerResources: [{method: Connect, \
             clientIds: [x]}, {method: Connect}]",
            "line 10: allows nothing that line 10 does not allow",
        ),
    ] {
        let found = warnings(&sound(rules));
        assert_eq!(found.len(), 1, "{rules}: {found:?}");
        assert!(found[0].starts_with(expected), "{rules}: {found:?}");
    }
}

#[test]
fn write_with_a_read_elsewhere_has_no_warning() {
    let rules = "  - principals: {usernames: [c]}
    stateStoreResources:
      - {method: Fence, keys: [x]}
      - {method: Write, keys: [x]}
      - {method: Read, keys: [x, y]}";
    assert_eq!(warnings(&sound(rules)), [""; 0]);
}

/// Of two equal resources, one is redundant.
#[test]
fn second_of_two_equal_resources_is_redundant() {
    let rules = "  - principals: {usernames: [c]}
    stateStoreResources:
      - {method: Read, keys: [x]}
      - {method: Read, keys: [x]}";
    assert_eq!(warnings(&sound(rules)), ["line 12: allows nothing that line 11 does not allow"]);
}

#[test]
fn policy_that_allows_nothing_is_reported() {
    assert_eq!(
        warnings("rules: []"),
        ["line 1: the policy has no rules, so every action is \
        refused"]
    );
    let keys =
        "rules: [{principals: {usernames: [a]}, stateStoreResources: [{method: Read, keys: [x]}]}]";
    let found = warnings(keys);
    assert!(
        found[0].contains("no client may connect")
            && found[1].contains("no client may send requests"),
        "{found:?}"
    );
}

/// Pairs of resources for the same principals, each with whether the second is redundant.
#[test]
fn only_redundant_resources_are_reported() {
    let keys = |key_type: &str, keys: &str| {
        format!(
            "    stateStoreResources: [{{method: Read, keyType: {key_type}, keys: [{keys}]}}]\n"
        )
    };
    let topics = |method: &str, topics: &str| {
        format!("    brokerResources: [{{method: {method}, topics: [{topics}]}}]\n")
    };
    let connect =
        |ids: &str| format!("    brokerResources: [{{method: Connect, clientIds: [{ids}]}}]\n");
    for (first, second, is_needless) in [
        (keys("Pattern", "a, b"), keys("Pattern", "b"), true),
        (keys("Pattern", "a"), keys("Pattern", "a, b"), false),
        (keys("Pattern", "a"), keys("String", "a"), true),
        (keys("Pattern", "a?"), keys("String", "ab"), false),
        (keys("Pattern", "'a/*'"), keys("Pattern", "'a/b/*', 'a/[xy]'"), true),
        (keys("Pattern", "'a/?'"), keys("Pattern", "'a/*'"), false),
        (
            keys("Pattern", "'{principal.clientId}/*'"),
            keys("Pattern", "'{principal.username}/*'"),
            false,
        ),
        (keys("Pattern", "'x/*'"), keys("Pattern", "'{principal.clientId}/*'"), false),
        (keys("Pattern", "'a/*'"), keys("Pattern", "'a/{principal.clientId}'"), true),
        (keys("Pattern", "'*'"), keys("String", "a"), true),
        (keys("Pattern", "'*'"), keys("Binary", "YQ=="), false),
        (keys("String", "a, b"), keys("String", "a"), true),
        (keys("String", "a"), keys("String", "b"), false),
        (keys("Binary", "YQ==, YWI="), keys("Binary", "YQ=="), true),
        (keys("Binary", "YQ=="), keys("Binary", "YWI="), false),
        (keys("String", "a"), keys("Binary", "YQ=="), false),
        (topics("Publish", "a, b"), topics("Publish", "a"), true),
        (topics("Publish", "a"), topics("Publish", "b"), false),
        (topics("Subscribe", "a"), topics("Subscribe", "a"), true),
        (topics("Publish", "a"), topics("Subscribe", "a"), false),
        (connect("a, b"), connect("a"), true),
        (connect("a"), connect("b"), false),
        (connect("'*'"), connect("b"), true),
        (connect(""), connect("b"), true),
        (connect("b"), connect(""), false),
        (connect("a"), keys("String", "a"), false),
    ] {
        let rules: String = [&first, &second]
            .map(|resources| format!("  - principals: {{usernames: [c]}}\n{resources}"))
            .concat();
        let found = warnings(&sound(&rules));
        let needless = found.iter().any(|text| text.starts_with("line 12: allows nothing"));
        assert_eq!(needless, is_needless, "{rules}: {found:?}");
    }
}

#[test]
fn missing_right_to_receive_is_reported() {
    let without = |filters: &str| {
        let filter =
            "'clients/{principal.clientId}/#', 'clients/statestore/+/+/+/command/notify/+'";
        warnings(&sound("").replace(filter, filters))
    };
    let [answers] = &without("elsewhere")[..] else { panic!("one warning") };
    assert!(answers.starts_with("line 1: ") && answers.contains("clients/{principal.clientId}/#"));
    let [notes] = &without("'clients/{principal.clientId}/#'")[..] else { panic!("one warning") };
    assert!(notes.contains("no client may watch"), "{notes}");
    assert_eq!(without("'clients/#'"), [""; 0]);
}

#[test]
fn names_lists_the_kinds_that_the_rules_use() {
    let names = |principals: &str| {
        Policy::parse(&format!("rules: [{{principals: {principals}}}]")).unwrap().names()
    };
    let none = Names::default();
    assert_eq!(names("{}"), none);
    assert_eq!(names("{usernames: [a]}"), Names { user_names: true, ..none });
    assert_eq!(names("{clientIds: [a]}"), Names { client_ids: true, ..none });
    assert_eq!(names("{attributes: [{a: b}]}"), Names { attributes: true, ..none });
}

/// More than a thousand resources are not compared, so that parsing stays fast.
#[test]
fn over_a_thousand_resources_are_not_compared() {
    let many = |count: usize| {
        let resources = "{method: Write, keys: [x]}, ".repeat(count);
        let rules =
            format!("  - principals: {{usernames: [c]}}\n    stateStoreResources: [{resources}]");
        warnings(&sound(&rules)).len()
    };
    // Each reveals whether a key exists, and all but the first are redundant; three resources
    // precede them.
    assert_eq!(many(10), 10 + 9);
    assert_eq!(many(1_000), 0);
}
