//! Secrets do not reach `Debug` and errors: public types with bytes or passwords have their own
//! `Debug`, and the parsers whose errors quote their input are used in known files only.

use syn::{Item, Type};

use super::{File, check_all, file, is_named_in, rust_files};

/// Types that derive `Debug` although a field may hold bytes, and the reason.
const SHOWN: [(&str, &str); 8] = [
    ("core/src/client/config.rs ClientConfig", "the nonce begins all correlation data"),
    ("core/src/glob.rs Pattern", "pattern of keys"),
    ("core/src/lock/event.rs LockAction", "key"),
    ("mqtt/src/packet.rs Acks", "reason codes"),
    ("server/policy/src/action.rs Action", "keys"),
    ("server/host/src/archive/line.rs Entry", "key"),
    ("tests/conformance/src/report.rs Report", "keys"),
    ("transports/tokio/src/lock/mod.rs LeasedLock", "key"),
];

/// Types that show their content. Others have a rule for their own `Debug`.
const CONTAINERS: [&str; 11] = [
    "Arc", "BTreeMap", "BTreeSet", "Box", "Cow", "HashMap", "Mutex", "Option", "Result", "Vec",
    "VecDeque",
];

/// Parsers whose errors may contain their input, and the files that use them. Each of these files
/// removes the input from the error, and a test with a canary checks that.
const PARSERS: [(&str, &[&str]); 6] = [
    ("PemObject", &["transports/tokio/src/link/tls/pem.rs"]),
    ("KeyPair::from_pem", &["cli/src/dev/certificates.rs"]),
    ("toml::from_str", &["server/host/src/config/mod.rs"]),
    (
        "serde_json::from_",
        &[
            "cli/src/dev/directory.rs",
            "cli/src/dev/environment.rs",
            "cli/src/top/value.rs",
            "server/host/src/archive/line.rs",
            "server/host/src/http/traffic.rs",
            "server/host/src/login/service_accounts.rs",
            "server/host/src/login/service_accounts/keys.rs",
            "transports/tokio/src/client/typed.rs",
        ],
    ),
    ("serde_json::Deserializer", &["server/host/src/seed.rs"]),
    ("saphyr_parser", &["server/policy/src/document.rs"]),
];

/// Folders of the published packages.
const PUBLISHED: [&str; 16] = [
    "server/broker/src",
    "server/capture/src",
    "cli/src",
    "core/src",
    "mqtt/src",
    "server/policy/src",
    "server/host/src",
    "server/etcd/src",
    "server/sqlite/src",
    "tests/conformance/src",
    "transports/azure-mqtt/src",
    "transports/client/src",
    "transports/loopback/src",
    "transports/paho/src",
    "transports/rumqttc/src",
    "transports/tokio/src",
];

/// The files of the published packages, without tests.
fn published_files() -> Vec<File> {
    let mut files: Vec<File> = PUBLISHED.iter().flat_map(|folder| rust_files(folder)).collect();
    files.retain(|file| !file.path.ends_with("/tests.rs") && !file.path.contains("/simulation"));
    assert!(files.len() > 400, "{}", files.len());
    files
}

/// The public types that derive `Debug`, hold bytes or passwords, and are not in [`SHOWN`].
fn debug_of_secrets(file: &File) -> Vec<String> {
    let parsed = syn::parse_file(&file.text).expect("Rust");
    let found = parsed.items.iter().filter_map(suspicious);
    let is_known =
        |name: &String| SHOWN.iter().any(|(known, _)| *known == format!("{} {name}", file.path));
    found.filter(|name| !is_known(name)).map(|name| format!("{name} derives Debug")).collect()
}

#[test]
fn public_types_that_derive_debug_hold_no_secret() {
    let files = published_files();
    check_all(&files, debug_of_secrets);
    for (place, _) in SHOWN {
        let (path, name) = place.split_once(' ').expect("a path and a name");
        let file = files.iter().find(|file| file.path == path);
        let parsed = syn::parse_file(&file.expect(path).text).expect("Rust");
        assert!(
            parsed.items.iter().any(|item| suspicious(item).as_deref() == Some(name)),
            "{place}"
        );
    }
}

#[test]
fn parsers_that_quote_their_input_are_used_in_known_files() {
    let files = published_files();
    for (parser, known) in PARSERS {
        let found = files.iter().filter(|file| is_named_in(&file.text, parser));
        let found: Vec<&str> = found.map(|file| &*file.path).collect();
        assert_eq!(found, known, "{parser}");
    }
}

/// Returns the name of a public type that derives `Debug`, if a field may hold a secret.
fn suspicious(item: &Item) -> Option<String> {
    let (name, attributes, visibility) = match item {
        Item::Struct(item) => (&item.ident, &item.attrs, &item.vis),
        Item::Enum(item) => (&item.ident, &item.attrs, &item.vis),
        _ => return None,
    };
    let fields: Vec<&syn::Field> = match item {
        Item::Struct(item) => item.fields.iter().collect(),
        Item::Enum(item) => item.variants.iter().flat_map(|variant| &variant.fields).collect(),
        _ => Vec::new(),
    };
    let is_public = matches!(visibility, syn::Visibility::Public(_));
    let is_suspicious = |field: &&syn::Field| {
        let name = field.ident.as_ref().map(ToString::to_string).unwrap_or_default();
        let is_named = ["password", "credentials", "secret"].iter().any(|word| name.contains(word));
        (is_named && is_text(&field.ty)) || holds_bytes(&field.ty)
    };
    let is_shown = is_public && derives_debug(attributes) && fields.iter().any(is_suspicious);
    is_shown.then(|| name.to_string())
}

fn derives_debug(attributes: &[syn::Attribute]) -> bool {
    let mut derives = false;
    for attribute in attributes.iter().filter(|attribute| attribute.path().is_ident("derive")) {
        let _ = attribute.parse_nested_meta(|meta| {
            derives |= meta.path.is_ident("Debug");
            Ok(())
        });
    }
    derives
}

/// Returns whether a type contains bytes.
fn holds_bytes(ty: &Type) -> bool {
    holds(ty, &|ty| match ty {
        Type::Path(path) => path.path.segments.last().is_some_and(|last| {
            let is_vec_of_u8 = last.ident == "Vec" && arguments(last).any(is_u8);
            last.ident == "Bytes" || last.ident == "BytesMut" || is_vec_of_u8
        }),
        Type::Slice(slice) => is_u8(&slice.elem),
        Type::Array(array) => is_u8(&array.elem),
        _ => false,
    })
}

/// Returns whether a type contains a text.
fn is_text(ty: &Type) -> bool {
    holds(ty, &|ty| {
        matches!(ty, Type::Path(path)
        if path.path.segments.last().is_some_and(|last| {
            last.ident == "String" || last.ident == "str"
        }))
    })
}

fn is_u8(ty: &Type) -> bool {
    matches!(ty, Type::Path(path) if path.path.is_ident("u8"))
}

/// Returns whether a type or one of its parts is such a type.
fn holds(ty: &Type, is_it: &dyn Fn(&Type) -> bool) -> bool {
    is_it(ty)
        || match ty {
            Type::Path(path) => {
                let segments = path.path.segments.iter();
                let shown =
                    segments.filter(|last| CONTAINERS.iter().any(|name| last.ident == name));
                shown.flat_map(arguments).any(|ty| holds(ty, is_it))
            }
            Type::Reference(reference) => holds(&reference.elem, is_it),
            Type::Slice(slice) => holds(&slice.elem, is_it),
            Type::Array(array) => holds(&array.elem, is_it),
            Type::Tuple(tuple) => tuple.elems.iter().any(|ty| holds(ty, is_it)),
            _ => false,
        }
}

/// The type arguments of a part of a path.
fn arguments(segment: &syn::PathSegment) -> impl Iterator<Item = &Type> {
    let arguments = match &segment.arguments {
        syn::PathArguments::AngleBracketed(arguments) => Some(&arguments.args),
        _ => None,
    };
    arguments.into_iter().flatten().filter_map(|argument| match argument {
        syn::GenericArgument::Type(ty) => Some(ty),
        _ => None,
    })
}

/// A rule that no longer finds such a type would be of no use.
#[test]
fn types_with_bytes_or_passwords_are_found() {
    for (source, is_found) in [
        ("#[derive(Debug)] pub struct A { pub value: Option<Vec<u8>> }", true),
        ("#[derive(Clone, Debug)] pub enum A { B(u8, bytes::Bytes) }", true),
        ("#[derive(Debug)] pub struct A<'a>(&'a [u8]);", true),
        ("#[derive(Debug)] pub struct A { key: Box<[[u8; 16]]> }", true),
        ("#[derive(Debug)] pub struct A { credentials: Option<(String, String)> }", true),
        ("#[derive(Debug)] pub struct A { password_file: PathBuf, n: u8 }", false),
        ("#[derive(Debug)] pub struct A { reply: Option<Reply<Bytes>> }", false),
        ("#[derive(Debug)] struct A { value: Vec<u8> }", false),
        ("#[derive(Clone)] pub struct A { value: Vec<u8> }", false),
    ] {
        let complaints = debug_of_secrets(&file("a.rs", source));
        assert_eq!(!complaints.is_empty(), is_found, "{source}");
    }
}
