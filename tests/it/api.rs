//! The public API of each published package is committed in `tests/api`, so that a change is
//! visible as a diff.
//!
//! `STATESTORE_API=write cargo test -p statestore-tests api` updates the files.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use syn::{Attribute, Field, Fields, ImplItem, Item, TraitItem, Type, Visibility};

/// Packages and their folders.
const PACKAGES: [(&str, &str); 15] = [
    ("statestore-proto", "core"),
    ("statestore-mqtt", "mqtt"),
    ("statestore-broker", "server/broker"),
    ("statestore-policy", "server/policy"),
    ("statestore-capture", "server/capture"),
    ("statestore-tokio", "transports/tokio"),
    ("statestore-client", "transports/client"),
    ("statestore-rumqttc", "transports/rumqttc"),
    ("statestore-paho", "transports/paho"),
    ("statestore-azure-mqtt", "transports/azure-mqtt"),
    ("statestore-server", "server/host"),
    ("statestore-loopback", "transports/loopback"),
    ("statestore-sqlite", "server/sqlite"),
    ("statestore-etcd", "server/etcd"),
    ("statestore-verify", "tests/conformance"),
];

/// Attributes that callers depend on; the others are omitted.
const KEPT: [&str; 5] = ["derive", "non_exhaustive", "must_use", "cfg", "deprecated"];

#[test]
#[expect(clippy::disallowed_methods, reason = "the author of a change requests the update")]
fn public_api_equals_the_committed_one() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let mut changed = Vec::new();
    for (package, folder) in PACKAGES {
        let listing = listing(&root.join(folder).join("src/lib.rs"));
        let file = root.join("tests/api").join(format!("{package}.txt"));
        if std::env::var("STATESTORE_API").is_ok_and(|value| value == "write") {
            fs::write(&file, &listing).unwrap();
        }
        let committed = fs::read_to_string(&file).unwrap_or_default();
        if committed != listing {
            let differs = committed.lines().zip(listing.lines()).find(|(old, new)| old != new);
            changed.push(format!("{package}, first at {differs:?}"));
        }
    }
    let remedy = "run again with STATESTORE_API=write, and review the diff";
    assert!(changed.is_empty(), "the public API has changed: {changed:#?}\n{remedy}");
}

#[test]
fn listing_contains_only_public_items() {
    let source = "
        /// Documentation.
        #[derive(Clone)] pub struct Open { pub seen: u8, hidden: u8 }
        struct Closed;
        impl Open { #[must_use] pub fn read(&self) -> u8 { self.hidden } fn write(&mut self) {} }
        impl Closed { pub fn unreachable(&self) {} }
        impl Default for Open { fn default() -> Self { todo() } }
        pub(crate) fn inner() {}
        pub const LIMIT: usize = 7;
        #[cfg(test)] mod tests { pub fn test() {} }
    ";
    let found = show(syn::parse_str(source).unwrap(), &BTreeSet::from(["Open".into()]));
    let expected = "\
        #[derive(Clone)]\npub struct Open {\n    pub seen: u8,\n}\n\
        impl Open {\n    #[must_use]\n    pub fn read(&self) -> u8 {}\n}\n\
        impl Default for Open {}\n\
        pub const LIMIT: usize = 7;\n";
    assert_eq!(found, expected);
}

fn listing(root: &Path) -> String {
    let mut files = Vec::new();
    collect(root, "crate", &mut files);
    let public = files.iter().flat_map(|(_, file)| names(&file.items)).collect();
    let mut listing = String::new();
    for (module, file) in files {
        let shown = show(file, &public);
        if !shown.is_empty() {
            listing.push_str(&format!("// {module}\n{shown}\n"));
        }
    }
    listing
}

/// All modules with a separate file, parents first.
fn collect(path: &Path, module: &str, files: &mut Vec<(String, syn::File)>) {
    let file = syn::parse_file(&fs::read_to_string(path).unwrap()).unwrap();
    let stem = path.file_stem().unwrap();
    let own = path.parent().unwrap();
    let below = if stem == "lib" || stem == "mod" { own.to_owned() } else { own.join(stem) };
    let children: Vec<String> = file
        .items
        .iter()
        .filter_map(|item| match item {
            Item::Mod(item) if item.content.is_none() && !is_test(&item.attrs) => {
                Some(item.ident.to_string())
            }
            _ => None,
        })
        .collect();
    files.push((module.to_owned(), file));
    for child in children {
        let places: [PathBuf; 2] =
            [below.join(format!("{child}.rs")), below.join(&child).join("mod.rs")];
        let place = places.iter().find(|place| place.exists()).unwrap();
        collect(place, &format!("{module}::{child}"), files);
    }
}

/// The names of public types.
fn names(items: &[Item]) -> Vec<String> {
    let public = |item: &Item| {
        match item {
            Item::Struct(item) => Some((&item.vis, &item.ident)),
            Item::Enum(item) => Some((&item.vis, &item.ident)),
            Item::Trait(item) => Some((&item.vis, &item.ident)),
            Item::Type(item) => Some((&item.vis, &item.ident)),
            _ => None,
        }
        .and_then(|(vis, ident)| is_public(vis).then(|| ident.to_string()))
    };
    items.iter().filter_map(public).collect()
}

/// The public items of a file as text, without documentation and function bodies.
fn show(mut file: syn::File, public: &BTreeSet<String>) -> String {
    file.attrs.clear();
    file.items = std::mem::take(&mut file.items)
        .into_iter()
        .filter_map(|item| reduce(item, public))
        .collect();
    prettyplease::unparse(&file)
}

fn reduce(mut item: Item, public: &BTreeSet<String>) -> Option<Item> {
    let (vis, attrs) = match &mut item {
        Item::Const(item) => (Some(&item.vis), &mut item.attrs),
        Item::Enum(item) => {
            for variant in &mut item.variants {
                keep(&mut variant.attrs);
                variant.fields.iter_mut().for_each(|field| keep(&mut field.attrs));
            }
            (Some(&item.vis), &mut item.attrs)
        }
        Item::Fn(item) => {
            item.block.stmts.clear();
            (Some(&item.vis), &mut item.attrs)
        }
        Item::Impl(item) => {
            let own = item.trait_.is_none();
            item.items.retain_mut(|item| reduce_impl(item, own));
            let known = matches!(&*item.self_ty, Type::Path(path)
                if path.path.segments.last()
                    .is_some_and(|last| public.contains(&last.ident.to_string())));
            if !known || (own && item.items.is_empty()) {
                return None;
            }
            (None, &mut item.attrs)
        }
        // A macro definition counts if it is exported; a macro call may define anything.
        Item::Macro(item) => {
            let is_exported = |attr: &Attribute| attr.path().is_ident("macro_export");
            if item.ident.is_some() && !item.attrs.iter().any(is_exported) {
                return None;
            }
            (None, &mut item.attrs)
        }
        Item::Mod(item) => (Some(&item.vis), &mut item.attrs),
        Item::Struct(item) => {
            match &mut item.fields {
                Fields::Named(fields) => {
                    fields.named = fields.named.iter().filter_map(public_field).collect();
                }
                Fields::Unnamed(fields) => {
                    fields.unnamed = fields.unnamed.iter().filter_map(public_field).collect();
                }
                Fields::Unit => {}
            }
            (Some(&item.vis), &mut item.attrs)
        }
        Item::Trait(item) => {
            for item in &mut item.items {
                if let TraitItem::Fn(item) = item {
                    keep(&mut item.attrs);
                    item.default.iter_mut().for_each(|block| block.stmts.clear());
                }
            }
            (Some(&item.vis), &mut item.attrs)
        }
        Item::Type(item) => (Some(&item.vis), &mut item.attrs),
        Item::Use(item) => (Some(&item.vis), &mut item.attrs),
        _ => return None,
    };
    if is_test(attrs) || vis.is_some_and(|vis| !is_public(vis)) {
        return None;
    }
    keep(attrs);
    Some(item)
}

/// Reduces an item of an `impl`. In a trait `impl`, only associated types remain.
fn reduce_impl(item: &mut ImplItem, own: bool) -> bool {
    match item {
        ImplItem::Fn(item) => {
            keep(&mut item.attrs);
            item.block.stmts.clear();
            own && is_public(&item.vis)
        }
        ImplItem::Const(item) => {
            keep(&mut item.attrs);
            own && is_public(&item.vis)
        }
        ImplItem::Type(_) => true,
        _ => false,
    }
}

fn public_field(field: &Field) -> Option<Field> {
    let mut field = field.clone();
    keep(&mut field.attrs);
    is_public(&field.vis).then_some(field)
}

const fn is_public(vis: &Visibility) -> bool {
    matches!(vis, Visibility::Public(_))
}

fn is_test(attrs: &[Attribute]) -> bool {
    attrs.iter().any(|attr| {
        attr.path().is_ident("cfg")
            && matches!(&attr.meta, syn::Meta::List(list) if list.tokens.to_string() == "test")
    })
}

fn keep(attrs: &mut Vec<Attribute>) {
    attrs.retain(|attr| KEPT.iter().any(|kept| attr.path().is_ident(kept)));
}
