//! The attributes of certificates.

use statestore_policy::{CertificateAttributes, Subject};

const DEPLOYED: &str = r#"
apiVersion: mqttbroker.iotoperations.azure.com/v1
kind: BrokerAuthentication
metadata: {name: default, namespace: azure-iot-operations}
spec:
  authenticationMethods:
    - method: ServiceAccountToken
      serviceAccountTokenSettings: {audiences: [aio-internal]}
    - method: X509
      x509Settings:
        trustedClientCaCert: client-ca
        authorizationAttributes:
          root:
            attributes: {organization: contoso}
            subject: CN = Contoso Root CA Cert, OU = Engineering, C = US
          intermediate:
            attributes: {city: seattle, foo: bar}
            subject: CN = Contoso Intermediate CA
"#;

fn subject(text: &str) -> Subject {
    Subject::parse(text).expect("a subject")
}

#[test]
fn first_subject_with_an_entry_gives_the_attributes() {
    let table = CertificateAttributes::parse(DEPLOYED).expect("a table");
    assert_eq!(table.len(), 2);
    let root = subject("C=US, OU=Engineering, CN=Contoso Root CA Cert");
    let between = subject("cn=Contoso Intermediate CA");
    let own = subject("CN=fan");
    let names = |chain: &[&Subject]| -> Vec<String> {
        let chain: Vec<Subject> = chain.iter().copied().cloned().collect();
        table.of(&chain).iter().map(|(name, value)| format!("{name}={value}")).collect()
    };
    assert_eq!(names(&[&own, &between, &root]), ["city=seattle", "foo=bar"]);
    assert_eq!(names(&[&own, &root]), ["organization=contoso"]);
    assert!(names(&[&own]).is_empty());
    for other in [
        "CN=contoso intermediate ca",
        "O=Contoso Intermediate CA",
        "CN=Contoso Intermediate CA, C=US",
        "CN=Contoso Root CA Cert",
        "OU=Engineering, CN=Contoso Root CA Cert, C=US",
    ] {
        assert!(names(&[&subject(other)]).is_empty(), "{other}");
    }
}

#[test]
fn subject_parses_from_every_form_that_tools_print() {
    for (text, pairs) in [
        ("CN = a, O = b", &[("CN", "a"), ("O", "b")][..]),
        ("CN=a+O=b=c", &[("CN", "a"), ("O", "b=c")]),
        (r"CN = a\, b \+ c\\ , O=x", &[("CN", r"a, b + c\"), ("O", "x")]),
        (r"CN=a\ ", &[("CN", "a ")]),
        ("1.2.3 = \u{e9}", &[("1.2.3", "\u{e9}")]),
    ] {
        assert_eq!(subject(text), Subject::new(pairs.iter().copied()), "{text}");
    }
    for text in ["", "a", "CN=", "=a", "CN=a,", "CN=a\\", r"CN=a\41", "CN=a,,O=b", "/CN=a"] {
        // The last form is that of older tools; it parses, with a type that no certificate
        // contains.
        assert_eq!(Subject::parse(text).is_err(), text != "/CN=a", "{text}");
    }
}

#[test]
fn invalid_table_is_rejected_with_line_and_fix() {
    let x509 = "kind: BrokerAuthentication\nspec:\n  authenticationMethods:\n  - method: X509\n    \
                x509Settings:\n";
    for (text, line, part) in [
        ("", 1, "authorizationAttributes"),
        ("rules: []", 1, "`rules` is unknown"),
        ("authorizationAttributes:\n  a: {subject: x, attributes: {}}", 2, "CN = smart-fan"),
        ("authorizationAttributes:\n  a: {subject: CN=x}", 2, "`attributes`"),
        ("authorizationAttributes:\n  a: {attributes: {}}", 2, "`subject`"),
        ("authorizationAttributes:\n  a: {subject: CN=x, attributes: {b: \"\"}}", 2, "empty"),
        ("authorizationAttributes:\n  a: {subject: CN=x, attributes: {b: [c]}}", 2, "a text"),
        (
            "authorizationAttributes:\n  a: {subject: \"CN=x,O=y\", attributes: {}}\n  b: \
             {subject: \"O=y,CN=x\", attributes: {}}",
            3,
            "an entry above",
        ),
        ("kind: BrokerAuthorization\nspec: {}", 1, "BrokerAuthentication"),
        ("kind: BrokerAuthentication\nspec: {authenticationMethods: []}", 2, "X509"),
        (&format!("{x509}      trustedClientCaCert: a"), 6, "authorizationAttributes"),
        (
            &format!(
                "{x509}      {{authorizationAttributes: {{}}}}\n  - {{method: x509, \
                 x509Settings: {{authorizationAttributes: {{}}}}}}"
            ),
            7,
            "second",
        ),
    ] {
        let error = CertificateAttributes::parse(text).expect_err(text);
        assert_eq!(error.line, line, "{error}");
        assert!(error.to_string().contains(part), "{error}");
    }
}
