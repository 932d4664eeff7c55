//! Policies, tested with tables, with an oracle that examines every character, and with published
//! documents.

mod cases;
mod certificates;
mod decisions;
mod documents;
mod laws;
mod lint;
mod naive;
