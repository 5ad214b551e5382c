"""What training costs, as the records in measurements/speed have it."""
