//! The measured calls.
//!
//! A name consists of the layer, the operation and its input: `codec/decode/set/16B`,
//! `store/set/100-keys/1-watcher`.

#[cfg(feature = "machines")]
mod broker;
#[cfg(feature = "machines")]
mod client;
mod codec;
mod hlc;
#[cfg(feature = "machines")]
mod packet;
#[cfg(feature = "machines")]
mod session;
#[cfg(feature = "machines")]
mod store;

#[cfg(feature = "machines")]
pub use broker::broker;
#[cfg(feature = "machines")]
pub use client::client;
pub use codec::codec;
pub use hlc::hlc;
#[cfg(feature = "machines")]
pub use packet::packet;
#[cfg(feature = "machines")]
pub use session::session;
#[cfg(feature = "machines")]
pub use store::store;

/// A call, which can be repeated.
pub type Call = Box<dyn FnMut()>;

/// Repetitions of a counted call, if one call takes few instructions.
const REPETITIONS: usize = 500;

/// Returns the paths of a layer.
#[cfg(any(test, feature = "machines"))]
type Layer = fn() -> Vec<Path>;

/// Every layer, the first part of the names of its paths, and these paths.
#[cfg(any(test, feature = "machines"))]
const LAYERS: &[(&str, Layer)] = &[
    ("codec", codec),
    ("hlc", hlc),
    #[cfg(feature = "machines")]
    ("packet", packet),
    #[cfg(feature = "machines")]
    ("session", session),
    #[cfg(feature = "machines")]
    ("broker", broker),
    #[cfg(feature = "machines")]
    ("store", store),
    #[cfg(feature = "machines")]
    ("client", client),
];

/// What one call processes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Amount {
    /// Bytes of a payload, packet or text.
    Bytes(usize),
    /// Requests or messages.
    Messages(usize),
}

/// A call that runs for each request or message, with its input.
pub struct Path {
    /// Name: what is called, and with what.
    pub name: String,
    /// What one call processes; `None` if that is a single operation.
    pub amount: Option<Amount>,
    /// Whether criterion measures the call. If not, it can be repeated only as often as it is
    /// counted.
    pub is_timed: bool,
    /// Number of calls for a count of instructions; zero if they are not counted.
    pub repetitions: usize,
    prepare: Box<dyn Fn() -> Call>,
}

impl Path {
    /// A path that criterion measures. `prepare` executes the call at least once and compares its
    /// result with the expected one, then returns the call.
    fn new<C: FnMut() + 'static>(
        name: impl Into<String>,
        prepare: impl Fn() -> C + 'static,
    ) -> Self {
        let prepare = Box::new(move || -> Call { Box::new(prepare()) });
        Self { name: name.into(), amount: None, is_timed: true, repetitions: 0, prepare }
    }

    fn bytes(self, bytes: usize) -> Self {
        Self { amount: Some(Amount::Bytes(bytes)), ..self }
    }

    #[cfg(feature = "machines")]
    fn messages(self, messages: usize) -> Self {
        Self { amount: Some(Amount::Messages(messages)), ..self }
    }

    fn counted(self) -> Self {
        self.counted_with(REPETITIONS)
    }

    fn counted_with(self, repetitions: usize) -> Self {
        Self { repetitions, ..self }
    }

    #[cfg(feature = "machines")]
    fn untimed(self) -> Self {
        Self { is_timed: false, ..self }
    }

    /// Returns the call, after it was executed at least once.
    ///
    /// # Panics
    /// If a result is not the expected one.
    #[must_use]
    pub fn prepare(&self) -> Call {
        (self.prepare)()
    }
}

/// Returns the paths whose instructions are counted.
#[cfg(feature = "machines")]
#[must_use]
pub fn counted() -> Vec<Path> {
    let paths = LAYERS.iter().flat_map(|(_, paths)| paths());
    paths.filter(|path| path.repetitions > 0).collect()
}

/// Returns the counted path with this name. Prepares nothing of other layers, because that would
/// change the heap of the counted calls.
#[cfg(feature = "machines")]
#[must_use]
pub fn find(name: &str) -> Option<Path> {
    let (_, paths) = LAYERS.iter().find(|(layer, _)| name.split('/').next() == Some(layer))?;
    paths().into_iter().find(|path| path.repetitions > 0 && path.name == name)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    #[cfg(feature = "machines")]
    fn each_counted_path_returns_the_expected_results_for_all_repetitions() {
        for path in counted() {
            let mut call = path.prepare();
            (0..path.repetitions).for_each(|_| call());
        }
    }

    #[test]
    fn names_are_unique_and_begin_with_their_layer() {
        let mut names = BTreeSet::new();
        for (layer, paths) in LAYERS {
            for path in paths() {
                assert_eq!(path.name.split('/').next(), Some(*layer));
                assert!(names.insert(path.name.clone()), "{} is there twice", path.name);
            }
        }
    }
}
