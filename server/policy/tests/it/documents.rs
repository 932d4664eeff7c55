//! Documents in every published form, and errors in others.

use statestore_policy::{Action, Policy, Principal};

const KUBERNETES: &str = r#"
apiVersion: mqttbroker.iotoperations.azure.com/v1
kind: BrokerAuthorization
metadata:
  name: "my-authz-policies"
  namespace: azure-iot-operations
spec:
  authorizationPolicies:
    cache: Enabled
    rules:
      - principals:
          usernames:
            - "temperature-sensor"
            - "humidity-sensor"
          attributes:
            - city: "seattle"
              organization: "contoso"
        brokerResources:
          - method: Connect
          - method: Publish
            topics:
              - "/telemetry/{principal.username}"
              - "/telemetry/{principal.attributes.organization}"
          - method: Subscribe
            topics:
              - "/commands/{principal.attributes.organization}"
"#;

const RESOURCE_MANAGER: &str = r#"{
  "properties": {
    "authorizationPolicies": {
      "cache": "Enabled",
      "rules": [
        {
          "principals": {
            "clientIds": ["my-client-id"],
            "attributes": [{"floor": "floor1", "site": "site1"}]
          },
          "brokerResources": [
            {"method": "Connect"},
            {"method": "Subscribe", "topics": ["topic", "topic/with/wildcard/#"]}
          ],
          "stateStoreResources": [
            {"method": "ReadWrite", "keyType": "Pattern", "keys": ["*"]}
          ]
        }
      ]
    },
    "provisioningState": "Succeeded"
  },
  "extendedLocation": {"name": "somewhere", "type": "CustomLocation"}
}"#;

const PORTAL: &str = r#"[
    {
        "brokerResources": [
            {
                "clientIds": ["{principal.attributes.building}*"],
                "method": "Connect",
                "topics": []
            },
            {
                "clientIds": [],
                "method": "Publish",
                "topics": ["sensors/{principal.attributes.building}/{principal.clientId}/telemetry"]
            }
        ],
        "principals": {
            "attributes": [{"building": "building22"}, {"building": "building23"}]
        }
    }
]"#;

fn allows(document: &str, principal: &Principal<'_>, action: Action<'_>) -> bool {
    let policy = Policy::parse(document).unwrap_or_else(|error| panic!("{error}"));
    policy.decide(principal, &action).is_allowed()
}

#[test]
fn kubernetes_document_is_decided_as_documented() {
    let named = Principal {
        user_name: Some("temperature-sensor"),
        attributes: &[("organization", "contoso")],
        ..Principal::default()
    };
    let other = Principal {
        user_name: Some("some-other-username"),
        attributes: &[("organization", "contoso"), ("city", "seattle")],
        ..Principal::default()
    };
    let half = Principal { attributes: &[("organization", "contoso")], ..Principal::default() };
    for (principal, action, expected) in [
        (&named, Action::Connect, true),
        (&named, Action::Publish("/telemetry/temperature-sensor"), true),
        (&named, Action::Publish("/telemetry/humidity-sensor"), false),
        (&named, Action::Publish("/telemetry/contoso"), true),
        (&other, Action::Publish("/telemetry/contoso"), true),
        (&other, Action::Publish("/telemetry/temperature-sensor"), false),
        // The rule applies to this principal as well.
        (&other, Action::Publish("/telemetry/some-other-username"), true),
        (&other, Action::Subscribe("/commands/contoso"), true),
        (&other, Action::Subscribe("/commands/+"), false),
        (&half, Action::Connect, false),
        (&named, Action::Read(b"key"), false),
    ] {
        assert_eq!(allows(KUBERNETES, principal, action), expected, "{principal:?} {action:?}");
    }
}

#[test]
fn documents_of_the_resource_manager_and_the_portal_are_decided() {
    let named = Principal { client_id: "my-client-id", ..Principal::default() };
    assert!(allows(RESOURCE_MANAGER, &named, Action::Write(b"any\nthing")));
    assert!(allows(RESOURCE_MANAGER, &named, Action::Write(b"\xff")), "`*` matches every key");
    assert!(allows(RESOURCE_MANAGER, &named, Action::Subscribe("topic/with/wildcard/+/x")));
    assert!(!allows(RESOURCE_MANAGER, &named, Action::Publish("topic")));

    let principal = |client_id| Principal {
        client_id,
        attributes: &[("building", "building22")],
        ..Principal::default()
    };
    assert!(allows(PORTAL, &principal("building22-lamp"), Action::Connect));
    assert!(!allows(PORTAL, &principal("building23-lamp"), Action::Connect));
    let topic = "sensors/building22/building22-lamp/telemetry";
    assert!(allows(PORTAL, &principal("building22-lamp"), Action::Publish(topic)));
    assert!(!allows(PORTAL, &principal("other"), Action::Publish(topic)));
}

/// Values of a principal are always inserted as plain text.
#[test]
fn wildcards_in_names_match_literally() {
    let document = r#"
rules:
  - principals: {usernames: ["*"]}
    brokerResources:
      - {method: Connect, clientIds: ["{principal.username}-?"]}
      - {method: Subscribe, topics: ["clients/{principal.username}/#"]}
      - {method: Publish, topics: ["clients/{principal.username}/x"]}
    stateStoreResources:
      - {method: Read, keys: ["of/{principal.username}/*"]}
      - {method: Write, keyType: string, keys: ["{principal.username}"]}
"#;
    fn named<'a>(user_name: &'a str, client_id: &'a str) -> Principal<'a> {
        Principal { client_id, user_name: Some(user_name), attributes: &[] }
    }
    for name in ["*", "?", "[a]", "[!b]", "**", "+", "#", "a/b", "a", "[", "]"] {
        let principal = named(name, "");
        let key = format!("of/{name}/x");
        assert!(allows(document, &principal, Action::Read(key.as_bytes())), "{name}");
        assert!(allows(document, &principal, Action::Write(name.as_bytes())), "{name}");
        assert_eq!(allows(document, &principal, Action::Read(b"of/a/x")), name == "a", "{name}");
        let topic = "clients/a/x";
        assert_eq!(allows(document, &principal, Action::Publish(topic)), name == "a", "{name}");
        for filter in ["clients/+/x", "clients/#", "clients/a/#", "clients/a/b/#"] {
            let is_own = name == "a" && filter.starts_with("clients/a/");
            let decided = allows(document, &principal, Action::Subscribe(filter));
            assert_eq!(decided, is_own, "{name} {filter}");
        }
        let id = format!("{name}-1");
        assert!(allows(document, &named(name, &id), Action::Connect), "{name}");
        assert_eq!(allows(document, &named(name, "a-1"), Action::Connect), name == "a", "{name}");
    }
    let nameless = Principal { client_id: "a", ..Principal::default() };
    assert!(!allows(document, &nameless, Action::Connect));
    assert!(!allows(document, &named("", "-1"), Action::Connect), "an empty name counts as absent");
}

#[test]
fn every_error_is_reported_with_its_line_and_path() {
    let rule = |text: &str| format!("rules:\n  - principals: {{usernames: [a]}}\n{text}");
    let keys = |text: &str| rule(&format!("    stateStoreResources:\n      - {text}\n"));
    let topics = |text: &str| {
        rule(&format!("    brokerResources:\n      - {{method: Publish, topics: [{text}]}}\n"))
    };
    let deep = "[".repeat(40) + &"]".repeat(40);
    for (document, line, path, problem) in [
        (String::new(), 1, "the document", "it is empty"),
        ("{".into(), 2, "the document", ""),
        ("rule: []".into(), 1, "the document", "lacks `rules`"),
        ("kind: Pod\nspec: {}".into(), 1, "kind", "is another kind; expected BrokerAuthorization"),
        ("rules: 5".into(), 1, "rules", "is a text; expected a list"),
        ("rules: []\nrules: []".into(), 2, "the document", "`rules` occurs twice"),
        ("rules: []\n---\nrules: []".into(), 2, "the document", "a second document"),
        ("rules: &a []".into(), 1, "the document", "anchors"),
        ("rules: !!seq []".into(), 1, "the document", "anchors and tags"),
        (format!("rules: {deep}"), 1, "the document", "exceeds 32 levels"),
        ("rules:\n  - {}".into(), 2, "rules[1]", "lacks `principals`"),
        (rule("    stateResources: []\n"), 3, "rules[1].stateResources", "is unknown here"),
        ("rules: [{principals: {users: [a]}}]".into(), 1, "rules[1].principals.users", "unknown"),
        (
            "rules: [{principals: {usernames: ['']}}]".into(),
            1,
            "rules[1].principals.usernames[1]",
            "is empty",
        ),
        (
            "rules: [{principals: {attributes: [{}]}}]".into(),
            1,
            "rules[1].principals.attributes[1]",
            "is empty",
        ),
        (
            keys("{method: Fetch, keys: [a]}"),
            4,
            "rules[1].stateStoreResources[1].method",
            "is not one of Read, Write, ReadWrite",
        ),
        (keys("{keys: [a]}"), 4, "rules[1].stateStoreResources[1]", "lacks `method`"),
        (keys("{method: Read}"), 4, "rules[1].stateStoreResources[1]", "lacks `keys`"),
        (keys("{method: Read, keys: []}"), 4, "rules[1].stateStoreResources[1]", "lacks keys"),
        (
            keys("{method: Read, keys: ['a**']}"),
            4,
            "rules[1].stateStoreResources[1].keys[1]",
            "is not a pattern",
        ),
        (
            keys("{method: Read, keys: ['{principal.clientId}**']}"),
            4,
            "rules[1].stateStoreResources[1].keys[1]",
            "is not a pattern",
        ),
        (
            keys("{method: Read, keys: ['{principal.name}']}"),
            4,
            "rules[1].stateStoreResources[1].keys[1]",
            "has an unknown placeholder",
        ),
        (
            keys("{method: Read, keys: ['{principal.attributes.}']}"),
            4,
            "rules[1].stateStoreResources[1].keys[1]",
            "has an unknown placeholder",
        ),
        (
            keys("{method: Read, keys: ['{principal.clientId']}"),
            4,
            "rules[1].stateStoreResources[1].keys[1]",
            "without a closing `}`",
        ),
        (
            keys("{method: Read, keyType: Binary, keys: ['*']}"),
            4,
            "rules[1].stateStoreResources[1].keys[1]",
            "is not Base64",
        ),
        (topics("a/#/b"), 4, "rules[1].brokerResources[1].topics[1]", "is not a topic filter"),
        (topics("$share/g/a"), 4, "rules[1].brokerResources[1].topics[1]", "has a share"),
        (
            topics("'client-{principal.clientId}/#'"),
            4,
            "rules[1].brokerResources[1].topics[1]",
            "not a whole level",
        ),
        (
            rule("    brokerResources: [{method: Connect, topics: [a]}]\n"),
            3,
            "rules[1].brokerResources[1]",
            "has topics, which this method does not support",
        ),
    ] {
        let error = Policy::parse(&document).expect_err(&document);
        assert_eq!((error.line, &*error.path), (line, path), "{document}: {error}");
        assert!(error.problem.contains(problem), "{document}: {error}");
    }
}

#[test]
fn document_over_one_mebibyte_is_rejected() {
    let long = |bytes: usize| format!("rules: [] #{}", "x".repeat(bytes - 11));
    assert!(Policy::parse(&long(1 << 20)).is_ok());
    let error = Policy::parse(&long((1 << 20) + 1)).unwrap_err();
    assert!(error.to_string().contains("exceeds 1048576 bytes"), "{error}");
}
