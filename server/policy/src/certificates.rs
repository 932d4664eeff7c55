//! Attributes of client certificates.

use alloc::borrow::ToOwned;
use alloc::boxed::Box;
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;

use crate::document;
use crate::error::PolicyError;
use crate::parse::{Cursor, required};

/// The attributes of client certificates: the table `authorizationAttributes` of a
/// `BrokerAuthentication` of Azure IoT Operations.
///
/// ```
/// use statestore_policy::{CertificateAttributes, Subject};
///
/// let table = CertificateAttributes::parse(
///     r#"
///     authorizationAttributes:
///       root:
///         subject: CN = Contoso Root CA, OU = Engineering, C = US
///         attributes: {organization: contoso}
///       fan:
///         subject: CN = smart-fan
///         attributes: {building: "17"}
///     "#,
/// )?;
/// let (fan, other) = (Subject::parse("CN=smart-fan")?, Subject::parse("CN=pump")?);
/// let root = Subject::parse("C=US,OU=Engineering,CN=Contoso Root CA")?;
/// assert_eq!(table.of(&[fan, root.clone()]), [("building".into(), "17".into())]);
/// assert_eq!(table.of(&[other, root]), [("organization".into(), "contoso".into())]);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// The document is either this table alone or a whole `BrokerAuthentication` with one method
/// `X509`. The names of the entries are ignored.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CertificateAttributes {
    entries: Vec<Entry>,
}

/// A name and a value.
type Pair = (Box<str>, Box<str>);

#[derive(Clone, Debug, PartialEq, Eq)]
struct Entry {
    subject: Subject,
    attributes: Vec<Pair>,
}

impl CertificateAttributes {
    /// Parses a document, JSON or YAML, of at most 1 MiB.
    ///
    /// # Errors
    /// [`PolicyError`] for the first error in the document.
    pub fn parse(text: &str) -> Result<Self, PolicyError> {
        let root = document::read(text, TABLE)?;
        let root = Cursor::new(&root);
        let is_whole = root.all_fields()?.iter().any(|(name, _)| *name == "spec");
        let table = if is_whole {
            of_resource(&root)?
        } else {
            required(&root, &root.fields(&[TABLE])?, TABLE)?
        };
        let mut entries: Vec<Entry> = Vec::new();
        for (_, cursor) in table.all_fields()? {
            let fields = cursor.fields(&["subject", "attributes"])?;
            let subject = required(&cursor, &fields, "subject")?;
            let pairs = required(&cursor, &fields, "attributes")?.all_fields()?;
            let pair =
                |(name, value): &(&str, Cursor<'_>)| Ok(((*name).into(), value.name()?.into()));
            let attributes = pairs.iter().map(pair).collect::<Result<_, PolicyError>>()?;
            let parsed = Subject::parse(subject.text()?)
                .map_err(|error| subject.problem(format!("is not a subject: {error}")))?;
            if entries.iter().any(|other| other.subject.is(&parsed)) {
                return Err(subject.problem("is also in an entry above; merge the entries".into()));
            }
            entries.push(Entry { subject: parsed, attributes });
        }
        Ok(Self { entries })
    }

    /// Returns the attributes for a certificate chain: those of the first subject that has an
    /// entry. The chain begins with the client's certificate and ends with the root CA.
    #[must_use]
    pub fn of(&self, subjects: &[Subject]) -> &[(Box<str>, Box<str>)] {
        let entry = |subject: &Subject| self.entries.iter().find(|entry| entry.subject.is(subject));
        subjects.iter().find_map(entry).map_or(&[], |entry| &entry.attributes)
    }

    /// Returns the number of entries.
    #[must_use]
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// Returns whether the table is empty.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }
}

const TABLE: &str = "authorizationAttributes";

/// Returns the table in a whole resource. Settings of other methods are ignored.
fn of_resource<'a>(root: &Cursor<'a>) -> Result<Cursor<'a>, PolicyError> {
    let fields = root.fields(&["apiVersion", "kind", "metadata", "spec", "status"])?;
    let kind = required(root, &fields, "kind")?;
    if kind.text()? != "BrokerAuthentication" {
        return Err(kind.problem("should be BrokerAuthentication".into()));
    }
    let spec = required(root, &fields, "spec")?;
    let methods =
        required(&spec, &spec.fields(&["authenticationMethods"])?, "authenticationMethods")?;
    let mut found = None;
    for method in methods.items()? {
        let known = ["method", "x509Settings", "serviceAccountTokenSettings", "customSettings"];
        let fields = method.fields(&known)?;
        if !required(&method, &fields, "method")?.text()?.eq_ignore_ascii_case("X509") {
            continue;
        }
        let settings = required(&method, &fields, "x509Settings")?;
        let known = [TABLE, "trustedClientCaCert", "trustedClientCaCertRef"];
        let table = required(&settings, &settings.fields(&known)?, TABLE)?;
        if found.replace(table).is_some() {
            return Err(method.problem("is a second X509 method; only one is allowed".into()));
        }
    }
    found.ok_or_else(|| {
        methods.problem("contains no method X509, which holds the attributes".into())
    })
}

/// The subject of a certificate: pairs of type and value, such as `CN` and `smart-fan`, in the
/// order of the certificate.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Subject {
    pairs: Vec<Pair>,
}

/// An error in the text form of a subject.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "the expected form is CN = smart-fan, O = Contoso, with a backslash before , + and \\ in \
    values"
)]
pub struct SubjectError;

impl Subject {
    /// Creates a subject from pairs of type and value.
    #[must_use]
    pub fn new<'a>(pairs: impl IntoIterator<Item = (&'a str, &'a str)>) -> Self {
        Self { pairs: pairs.into_iter().map(|(name, value)| (name.into(), value.into())).collect() }
    }

    /// Parses the text form that tools print, with or without blanks around `,`, `+` and `=`.
    ///
    /// # Errors
    /// [`SubjectError`] if the text does not have that form.
    pub fn parse(text: &str) -> Result<Self, SubjectError> {
        let mut parts: Vec<String> = Vec::new();
        let mut part = String::new();
        // The trailing blank of an escaped pair is part of the value, so nothing before this
        // position is trimmed.
        let mut kept = 0;
        let mut letters = text.chars();
        let end = |part: &mut String, kept: &mut usize| {
            let len = part.trim_end().len().max(*kept);
            part.truncate(len);
            *kept = 0;
            core::mem::take(part)
        };
        while let Some(letter) = letters.next() {
            match letter {
                ',' | '+' => parts.push(end(&mut part, &mut kept)),
                '\\' => {
                    let escaped = letters.next().filter(|letter| !letter.is_alphanumeric());
                    part.push(escaped.ok_or(SubjectError)?);
                    kept = part.len();
                }
                _ => part.push(letter),
            }
        }
        parts.push(end(&mut part, &mut kept));
        let pair = |part: &String| {
            let (name, value) = part.split_once('=').ok_or(SubjectError)?;
            let (name, value) = (name.trim(), value.trim_start());
            if name.is_empty() || value.is_empty() {
                Err(SubjectError)
            } else {
                Ok((name.to_owned(), value.to_owned()))
            }
        };
        let pairs = parts.iter().map(pair).collect::<Result<Vec<_>, _>>()?;
        Ok(Self::new(pairs.iter().map(|(name, value)| (name.as_str(), value.as_str()))))
    }

    /// Returns the total length of types and values, in bytes.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.pairs.iter().map(|(name, value)| name.len() + value.len()).sum()
    }

    /// Returns whether both are the same subject, in either order: some tools print a subject from
    /// its end.
    fn is(&self, other: &Self) -> bool {
        let same =
            |(own, other): (&Pair, &Pair)| own.0.eq_ignore_ascii_case(&other.0) && own.1 == other.1;
        let (own, other) = (&self.pairs, &other.pairs);
        own.len() == other.len()
            && (own.iter().zip(other).all(same) || own.iter().zip(other.iter().rev()).all(same))
    }
}
