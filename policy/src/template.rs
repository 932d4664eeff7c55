//! Texts with places for what a principal has.

use alloc::boxed::Box;
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;

use crate::ask::Principal;

/// How a place begins.
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

/// A text with places.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Template {
    pieces: Vec<Piece>,
}

/// What a value must not have in it, or what becomes of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Inside {
    /// A text, as it is.
    Text,
    /// A pattern: what is special there stands for itself.
    Pattern,
    /// A level of a topic filter: no other level, and no wildcard.
    Topic,
}

impl Template {
    /// Reads a text with places, or says what is wrong with them.
    pub(crate) fn parse(text: &str) -> Result<Self, String> {
        let mut pieces = Vec::new();
        let mut rest = text;
        while let Some((before, behind)) = rest.split_once(BEGIN) {
            if !before.is_empty() {
                pieces.push(Piece::Text(before.into()));
            }
            let (name, after) = behind
                .split_once('}')
                .ok_or_else(|| format!("`{BEGIN}` without `}}` behind it"))?;
            pieces.push(match name.split_once('.') {
                None if name == "clientId" => Piece::ClientId,
                None if name == "username" => Piece::UserName,
                Some(("attributes", name)) if !name.is_empty() => Piece::Attribute(name.into()),
                _ => {
                    return Err(format!(
                        "`{BEGIN}{name}}}` is nothing that a principal has; it is \
                         {{principal.clientId}}, {{principal.username}} or \
                         {{principal.attributes.NAME}}"
                    ));
                }
            });
            rest = after;
        }
        if !rest.is_empty() || pieces.is_empty() {
            pieces.push(Piece::Text(rest.into()));
        }
        Ok(Self { pieces })
    }

    /// The text, if it has no places.
    pub(crate) fn as_text(&self) -> Option<&str> {
        match &self.pieces[..] {
            [Piece::Text(text)] => Some(text),
            _ => None,
        }
    }

    /// The text for one principal, if that has everything that it takes.
    pub(crate) fn fill(&self, principal: &Principal<'_>, inside: Inside) -> Option<Box<str>> {
        self.put(inside, |piece| piece.of(principal))
    }

    /// The text for somebody who has `value` for everything.
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
                        // There is no other way to say that it is meant.
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

    /// Whether each place is a whole level of a topic filter.
    pub(crate) fn has_whole_levels(&self) -> bool {
        let marked = self.fill_all("\0", Inside::Text).unwrap_or_default();
        marked.split('/').all(|level| level == "\0" || !level.contains('\0'))
    }
}
