//! Texts with placeholders for values of a principal.

use alloc::boxed::Box;
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;

use crate::action::Principal;

/// The beginning of a placeholder.
const BEGIN: &str = "{principal.";

#[derive(Clone, Debug, PartialEq, Eq)]
enum Piece {
    Text(Box<str>),
    ClientId,
    UserName,
    Attribute(Box<str>),
}

impl Piece {
    fn of<'a>(&'a self, principal: &Principal<'a>) -> Option<&'a str> {
        match self {
            Self::Text(text) => Some(text),
            Self::ClientId => Some(principal.client_id),
            Self::UserName => principal.user_name,
            Self::Attribute(name) => principal.attribute(name),
        }
    }
}

/// A text with placeholders.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Template {
    pieces: Vec<Piece>,
}

/// The context into which a value is inserted; it determines which values are rejected or escaped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Inside {
    /// A plain text: the value is inserted unchanged.
    Text,
    /// A pattern: special characters of the value are escaped.
    Pattern,
    /// A level of a topic filter: a value with `/`, `+` or `#` is rejected.
    Topic,
}

impl Template {
    /// Parses a text with placeholders. An error describes the first invalid placeholder.
    pub(crate) fn parse(text: &str) -> Result<Self, String> {
        let mut pieces = Vec::new();
        let mut rest = text;
        while let Some((before, behind)) = rest.split_once(BEGIN) {
            if !before.is_empty() {
                pieces.push(Piece::Text(before.into()));
            }
            let (name, after) = behind
                .split_once('}')
                .ok_or_else(|| format!("`{BEGIN}` without a closing `}}`"))?;
            pieces.push(match name.split_once('.') {
                None if name == "clientId" => Piece::ClientId,
                None if name == "username" => Piece::UserName,
                Some(("attributes", name)) if !name.is_empty() => Piece::Attribute(name.into()),
                _ => {
                    return Err("has an unknown placeholder; expected {principal.clientId}, \
                                {principal.username} or {principal.attributes.NAME}"
                        .into());
                }
            });
            rest = after;
        }
        if !rest.is_empty() || pieces.is_empty() {
            pieces.push(Piece::Text(rest.into()));
        }
        Ok(Self { pieces })
    }

    /// Returns the text if it contains no placeholders.
    pub(crate) fn as_text(&self) -> Option<&str> {
        match &self.pieces[..] {
            [Piece::Text(text)] => Some(text),
            _ => None,
        }
    }

    /// Returns the text with the values of a principal, or `None` if the principal lacks one.
    pub(crate) fn fill(&self, principal: &Principal<'_>, inside: Inside) -> Option<Box<str>> {
        self.put(inside, |piece| piece.of(principal))
    }

    /// Returns the text with `value` for every placeholder.
    pub(crate) fn fill_all(&self, value: &str, inside: Inside) -> Option<Box<str>> {
        self.put(inside, |piece| match piece {
            Piece::Text(text) => Some(text),
            _ => Some(value),
        })
    }

    fn put<'a>(
        &'a self,
        inside: Inside,
        of: impl Fn(&'a Piece) -> Option<&'a str>,
    ) -> Option<Box<str>> {
        let mut text = String::new();
        for piece in &self.pieces {
            let value = of(piece)?;
            match (piece, inside) {
                (Piece::Text(_), _) => text.push_str(value),
                (_, _) if value.is_empty() => return None,
                (_, Inside::Text) => text.push_str(value),
                (_, Inside::Topic) if value.contains(['/', '+', '#']) => return None,
                (_, Inside::Topic) => text.push_str(value),
                (_, Inside::Pattern) => {
                    for char in value.chars() {
                        // A class of one character is the only way to escape it.
                        if matches!(char, '*' | '?' | '[') {
                            text.extend(['[', char, ']']);
                        } else {
                            text.push(char);
                        }
                    }
                }
            }
        }
        Some(text.into())
    }

    /// Returns whether each placeholder is a whole level of a topic filter.
    pub(crate) fn has_whole_levels(&self) -> bool {
        let marked = self.fill_all("\0", Inside::Text).unwrap_or_default();
        marked.split('/').all(|level| level == "\0" || !level.contains('\0'))
    }
}
