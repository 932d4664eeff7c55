//! The policy, by tables, by an oracle that looks at every letter, and by documents of other people's shapes.

mod cases;
mod certificates;
mod decisions;
mod documents;
mod laws;
mod lint;
mod naive;
