//! The stories of the claims against a driver, a disk and an API server that do as they are told. Time is paused where it
//! matters.

mod adoption;
mod collection;
mod failures;
mod ownership;
mod recovery;
mod reviewed;
mod rig;
mod waits;
