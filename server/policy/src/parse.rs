//! Converts a document to a policy.

use alloc::boxed::Box;
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;

use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use statestore_mqtt::topic;
use statestore_proto::glob::Pattern;

use crate::document::{self, Node, Value};
use crate::error::PolicyError;
use crate::rule::{Grant, Keys, Policy, Principals, Resource, Rule, Section};
use crate::template::{Inside, Template};

/// The fields that can enclose the rules, each with ignored fields next to it: metadata
/// and cache settings.
const WRAPPERS: &[(&str, &[&str])] = &[
    ("spec", &["apiVersion", "kind", "metadata", "status"]),
    ("properties", &["extendedLocation", "id", "name", "type", "systemData"]),
    ("authorizationPolicies", &["listenerRef", "provisioningState", "healthState"]),
    ("rules", &["cache", "enableCache"]),
];

impl Policy {
    /// Parses a document, JSON or YAML, of at most 1 MiB: see the [crate
    /// documentation](crate#the-document).
    ///
    /// # Errors
    /// [`PolicyError`] for the first error in the document.
    pub fn parse(text: &str) -> Result<Self, PolicyError> {
        let root = document::read(text, "rules")?;
        let root = Cursor::new(&root);
        let rules = root.unwrapped()?;
        let rules = rules.items()?.iter().map(rule).collect::<Result<Vec<_>, _>>()?;
        let mut resources = rules.iter().flat_map(|rule| &rule.resources);
        let has_fences = resources.any(|one| matches!(one.grant, Grant::Keys { fence: true, .. }));
        Ok(Self { rules, has_fences })
    }

    /// Returns the number of rules.
    #[must_use]
    pub fn len(&self) -> usize {
        self.rules.len()
    }

    /// Returns whether the policy is empty, so that every action is refused.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.rules.is_empty()
    }
}

/// A node and the path to it.
#[derive(Clone)]
pub(crate) struct Cursor<'a> {
    node: &'a Node,
    path: String,
}

impl<'a> Cursor<'a> {
    pub(crate) const fn new(node: &'a Node) -> Self {
        Self { node, path: String::new() }
    }

    pub(crate) fn problem(&self, problem: String) -> PolicyError {
        let path = if self.path.is_empty() { "the document".into() } else { self.path.clone() };
        PolicyError { line: self.node.line, path, problem }
    }

    fn is_no(&self, expected: &str) -> PolicyError {
        self.problem(format!("is {}; expected {expected}", self.node.value.kind()))
    }

    /// Returns the rules inside the fields that enclose them.
    fn unwrapped(self) -> Result<Self, PolicyError> {
        let mut cursor = self;
        if !matches!(cursor.node.value, Value::Table(_) | Value::List(_)) {
            return Err(cursor.problem("is not a policy: it lacks `rules`".into()));
        }
        while let Value::Table(table) = &cursor.node.value {
            let inner = WRAPPERS.iter().find(|(name, _)| table.iter().any(|(own, _)| own == name));
            let Some((name, siblings)) = inner else {
                return Err(cursor.problem(
                    "lacks `rules`, or a field that contains them: `authorizationPolicies`, \
                     `spec` or `properties`"
                        .into(),
                ));
            };
            let known: Vec<&str> = siblings.iter().copied().chain([*name]).collect();
            let fields = cursor.fields(&known)?;
            if let Some(kind) = fields.get("kind") {
                let text = kind.text()?;
                if text != "BrokerAuthorization" {
                    return Err(
                        kind.problem("is another kind; expected BrokerAuthorization".into())
                    );
                }
            }
            let Some(next) = fields.get(name) else {
                return Err(cursor.problem(format!("has an empty `{name}`")));
            };
            let is_last = *name == "rules";
            cursor = next;
            if is_last {
                break;
            }
        }
        Ok(cursor)
    }

    pub(crate) fn items(&self) -> Result<Vec<Self>, PolicyError> {
        let Value::List(list) = &self.node.value else { return Err(self.is_no("a list")) };
        let item = |(at, node)| Self { node, path: format!("{}[{}]", self.path, at + 1) };
        Ok(list.iter().enumerate().map(item).collect())
    }

    pub(crate) fn text(&self) -> Result<&'a str, PolicyError> {
        match &self.node.value {
            Value::Text(text) => Ok(text),
            _ => Err(self.is_no("a text")),
        }
    }

    /// Returns a text that is not empty.
    pub(crate) fn name(&self) -> Result<&'a str, PolicyError> {
        match self.text()? {
            "" => Err(self.problem("is empty".into())),
            text => Ok(text),
        }
    }

    pub(crate) fn all_fields(&self) -> Result<Vec<(&'a str, Self)>, PolicyError> {
        let Value::Table(table) = &self.node.value else { return Err(self.is_no("a table")) };
        let field = |(name, node): &'a (String, Node)| {
            let dot = if self.path.is_empty() { "" } else { "." };
            (name.as_str(), Self { node, path: format!("{}{dot}{name}", self.path) })
        };
        Ok(table.iter().map(field).collect())
    }

    /// Returns the fields of a table, which may have only the known names. A null field counts as
    /// absent.
    pub(crate) fn fields(&self, known: &[&str]) -> Result<Fields<'a>, PolicyError> {
        let mut fields = self.all_fields()?;
        if let Some((name, unknown)) = fields.iter().find(|(name, _)| !known.contains(name)) {
            return Err(unknown.problem(format!(
                "`{name}` is unknown here; expected one of {}",
                known.join(", ")
            )));
        }
        fields.retain(|(_, cursor)| !matches!(cursor.node.value, Value::Null));
        Ok(Fields { fields })
    }
}

pub(crate) struct Fields<'a> {
    fields: Vec<(&'a str, Cursor<'a>)>,
}

impl<'a> Fields<'a> {
    pub(crate) fn get(&self, name: &str) -> Option<Cursor<'a>> {
        self.fields.iter().find(|(own, _)| *own == name).map(|(_, cursor)| cursor.clone())
    }

    /// Returns the items of an optional list.
    pub(crate) fn items(&self, name: &str) -> Result<Vec<Cursor<'a>>, PolicyError> {
        self.get(name).map_or_else(|| Ok(Vec::new()), |list| list.items())
    }
}

fn rule(rule: &Cursor<'_>) -> Result<Rule, PolicyError> {
    let fields = rule.fields(&["principals", "brokerResources", "stateStoreResources"])?;
    let principals = match fields.get("principals") {
        Some(cursor) => principals(&cursor)?,
        None => {
            return Err(rule.problem(
                "lacks `principals`; name the clients it applies to, for example `usernames: \
                 [\"*\"]`"
                    .into(),
            ));
        }
    };
    let mut resources = Vec::new();
    for (at, cursor) in fields.items("brokerResources")?.iter().enumerate() {
        let (section, grant) = (Section::Broker, broker_grant(cursor)?);
        resources.push(Resource { line: cursor.node.line, section, at, grant });
    }
    for (at, cursor) in fields.items("stateStoreResources")?.iter().enumerate() {
        let (section, grant) = (Section::StateStore, key_grant(cursor)?);
        resources.push(Resource { line: cursor.node.line, section, at, grant });
    }
    Ok(Rule { line: rule.node.line, principals, resources })
}

fn principals(cursor: &Cursor<'_>) -> Result<Principals, PolicyError> {
    let fields = cursor.fields(&["usernames", "clientIds", "attributes"])?;
    let names = |field| -> Result<Vec<Box<str>>, PolicyError> {
        fields.items(field)?.iter().map(|name| name.name().map(Into::into)).collect()
    };
    let mut attributes = Vec::new();
    for table in fields.items("attributes")? {
        let pairs = table.all_fields()?;
        if pairs.is_empty() {
            return Err(table.problem("is empty, so it would match every client".into()));
        }
        let pair = |(name, value): &(&str, Cursor<'_>)| Ok(((*name).into(), value.text()?.into()));
        let mut pairs = pairs.iter().map(pair).collect::<Result<Vec<_>, PolicyError>>()?;
        pairs.sort_unstable();
        attributes.push(pairs);
    }
    Ok(Principals { user_names: names("usernames")?, client_ids: names("clientIds")?, attributes })
}

/// Returns the value for one of some words, in any case.
fn word<T: Copy>(cursor: &Cursor<'_>, words: &[(&str, T)]) -> Result<T, PolicyError> {
    let text = cursor.text()?;
    let found = words.iter().find(|(word, _)| word.eq_ignore_ascii_case(text));
    found.map(|(_, meaning)| *meaning).ok_or_else(|| {
        let words: Vec<&str> = words.iter().map(|(word, _)| *word).collect();
        cursor.problem(format!("is not one of {}", words.join(", ")))
    })
}

pub(crate) fn required<'a>(
    cursor: &Cursor<'a>,
    fields: &Fields<'a>,
    name: &str,
) -> Result<Cursor<'a>, PolicyError> {
    fields.get(name).ok_or_else(|| cursor.problem(format!("lacks `{name}`")))
}

/// Returns the items of a required list that must not be empty.
fn some<'a>(
    cursor: &Cursor<'a>,
    fields: &Fields<'a>,
    name: &str,
) -> Result<Vec<Cursor<'a>>, PolicyError> {
    let items = required(cursor, fields, name)?.items()?;
    if items.is_empty() {
        return Err(cursor.problem(format!("lacks {name}, so it allows nothing")));
    }
    Ok(items)
}

fn template(cursor: &Cursor<'_>) -> Result<Template, PolicyError> {
    Template::parse(cursor.name()?).map_err(|problem| cursor.problem(problem))
}

fn broker_grant(cursor: &Cursor<'_>) -> Result<Grant, PolicyError> {
    #[derive(Clone, Copy, PartialEq)]
    enum Method {
        Connect,
        Publish,
        Subscribe,
    }
    let fields = cursor.fields(&["method", "clientIds", "topics"])?;
    let methods = [
        ("Connect", Method::Connect),
        ("Publish", Method::Publish),
        ("Subscribe", Method::Subscribe),
    ];
    let method = word(&required(cursor, &fields, "method")?, &methods)?;
    let misplaced = if method == Method::Connect { "topics" } else { "clientIds" };
    if !fields.items(misplaced)?.is_empty() {
        return Err(cursor.problem(format!("has {misplaced}, which this method does not support")));
    }
    if method == Method::Connect {
        let ids = fields.items("clientIds")?;
        return Ok(Grant::Connect(ids.iter().map(pattern).collect::<Result<_, _>>()?));
    }
    let topics = some(cursor, &fields, "topics")?;
    let topics = topics.iter().map(filter).collect::<Result<_, _>>()?;
    Ok(if method == Method::Publish { Grant::Publish(topics) } else { Grant::Subscribe(topics) })
}

fn filter(cursor: &Cursor<'_>) -> Result<Template, PolicyError> {
    let template = template(cursor)?;
    if !template.has_whole_levels() {
        return Err(cursor.problem(
            "has a `{principal.…}` that is not a whole level; put only `/` next to it".into(),
        ));
    }
    let sample = template.fill_all("x", Inside::Topic).unwrap_or_default();
    if sample.starts_with("$share/") {
        return Err(cursor.problem(
            "has a share; remove it, since a subscription may always be \
            shared"
                .into(),
        ));
    }
    if !topic::is_filter(&sample) {
        return Err(cursor.problem(
            "is not a topic filter: `+` is a whole level, and `#` a whole level at the end".into(),
        ));
    }
    Ok(template)
}

fn pattern(cursor: &Cursor<'_>) -> Result<Template, PolicyError> {
    let template = template(cursor)?;
    let sample = template.fill_all("x", Inside::Pattern).unwrap_or_default();
    match Pattern::new(sample.as_bytes()) {
        Ok(_) => Ok(template),
        Err(error) => Err(cursor.problem(format!("is not a pattern: {}", error.kind))),
    }
}

fn key_grant(cursor: &Cursor<'_>) -> Result<Grant, PolicyError> {
    #[derive(Clone, Copy)]
    enum Type {
        Pattern,
        String,
        Binary,
    }
    let fields = cursor.fields(&["method", "keyType", "keys"])?;
    let methods = [
        ("Read", (true, false, false)),
        ("Write", (false, true, false)),
        ("ReadWrite", (true, true, false)),
        ("Fence", (false, false, true)),
    ];
    let (read, write, fence) = word(&required(cursor, &fields, "method")?, &methods)?;
    let types = [("Pattern", Type::Pattern), ("String", Type::String), ("Binary", Type::Binary)];
    let key_type = fields.get("keyType").map_or(Ok(Type::Pattern), |name| word(&name, &types))?;
    let keys = some(cursor, &fields, "keys")?;
    let keys = match key_type {
        Type::Pattern => Keys::Patterns(keys.iter().map(pattern).collect::<Result<_, _>>()?),
        Type::String => Keys::Texts(keys.iter().map(template).collect::<Result<_, _>>()?),
        Type::Binary => Keys::Bytes(keys.iter().map(bytes).collect::<Result<_, _>>()?),
    };
    Ok(Grant::Keys { read, write, fence, keys })
}

fn bytes(cursor: &Cursor<'_>) -> Result<Box<[u8]>, PolicyError> {
    let decoded = BASE64_STANDARD.decode(cursor.name()?);
    let invalid = |_| cursor.problem("is not Base64, which binary keys must be".into());
    decoded.map(Into::into).map_err(invalid)
}
