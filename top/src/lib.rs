//! The screen of `statestore top`: a machine without I/O.
//!
//! [`Screen`] receives key presses and [`Update`]s of the store, and returns [`Action`]s. The
//! caller carries them out and [`draw`]s the screen.
//!
//! ```
//! use crossterm::event::{KeyCode, KeyEvent};
//! use statestore_top::{Action, Screen};
//!
//! let mut screen = Screen::new("*".to_owned());
//! assert_eq!(screen.list(), Action::List);
//! assert_eq!(screen.key(KeyEvent::from(KeyCode::Char('q'))), Some(Action::Quit));
//! ```
#![forbid(unsafe_code)]

mod draw;
mod metrics;
mod state;
mod value;

#[cfg(test)]
mod tests;

pub use draw::draw;
pub use metrics::Metrics;
pub use state::{Action, Condition, KEYS_MAX, Screen, Update, Write};
pub use value::Value;
