//! Kinds of requests.

use core::fmt;

/// The kind of a request, without its arguments. It decides how the reply is read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum RequestKind {
    /// `GET`
    Get,
    /// `SET`
    Set,
    /// `DEL`
    Del,
    /// `VDEL`
    VDel,
    /// `KEYNOTIFY`
    Watch,
    /// `KEYNOTIFY … STOP`
    Unwatch,
    /// `SCAN`
    Scan,
}

impl RequestKind {
    /// All kinds, in the order of their discriminants.
    pub const ALL: &'static [Self] =
        &[Self::Get, Self::Set, Self::Del, Self::VDel, Self::Watch, Self::Unwatch, Self::Scan];

    /// Returns whether the request may change its key, so that fencing applies to it.
    #[must_use]
    pub const fn is_write(self) -> bool {
        matches!(self, Self::Set | Self::Del | Self::VDel)
    }

    /// The name in lower case, as a metric label.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Get => "get",
            Self::Set => "set",
            Self::Del => "del",
            Self::VDel => "vdel",
            Self::Watch => "keynotify",
            Self::Unwatch => "keynotify_stop",
            Self::Scan => "scan",
        }
    }

    pub(super) const fn verb(self) -> &'static str {
        match self {
            Self::Get => "GET",
            Self::Set => "SET",
            Self::Del => "DEL",
            Self::VDel => "VDEL",
            Self::Watch | Self::Unwatch => "KEYNOTIFY",
            Self::Scan => "SCAN",
        }
    }
}

/// The verb as it is sent; `KEYNOTIFY STOP` for the end of a registration.
impl fmt::Display for RequestKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.verb())?;
        if *self == Self::Unwatch { f.write_str(" STOP") } else { Ok(()) }
    }
}
