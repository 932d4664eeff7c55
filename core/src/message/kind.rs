//! Kinds of requests.

use core::fmt;

/// Declares the kinds with their names and verbs.
macro_rules! kinds {
    ($($(#[$doc:meta])* $kind:ident = $name:literal, $verb:literal;)*) => {
        /// The kind of a request, without its arguments. It decides how the reply is read.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        #[non_exhaustive]
        pub enum RequestKind { $($(#[$doc])* $kind,)* }

        impl RequestKind {
            /// All kinds, in the order of their discriminants.
            pub const ALL: &'static [Self] = &[$(Self::$kind),*];

            /// The name in lower case, as a metric label.
            #[must_use]
            pub const fn name(self) -> &'static str {
                match self { $(Self::$kind => $name,)* }
            }

            pub(super) const fn verb(self) -> &'static str {
                match self { $(Self::$kind => $verb,)* }
            }
        }
    };
}

kinds! {
    /// `GET`
    Get = "get", "GET";
    /// `SET`
    Set = "set", "SET";
    /// `DEL`
    Del = "del", "DEL";
    /// `VDEL`
    VDel = "vdel", "VDEL";
    /// `KEYNOTIFY`
    Watch = "keynotify", "KEYNOTIFY";
    /// `KEYNOTIFY … STOP`
    Unwatch = "keynotify_stop", "KEYNOTIFY";
    /// `SCAN`
    Scan = "scan", "SCAN";
}

impl RequestKind {
    /// Returns whether the request may change its key, so that fencing applies to it.
    #[must_use]
    pub const fn is_write(self) -> bool {
        matches!(self, Self::Set | Self::Del | Self::VDel)
    }
}

/// The verb as it is sent; `KEYNOTIFY STOP` for the end of a registration.
impl fmt::Display for RequestKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.verb())?;
        if *self == Self::Unwatch { f.write_str(" STOP") } else { Ok(()) }
    }
}
