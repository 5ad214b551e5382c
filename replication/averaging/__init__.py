"""What averaged weights and mirrored images are worth, and which recipe each benchmark takes."""
