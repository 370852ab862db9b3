local held = call('GET', lock) -- "<token> <fence>"; false if it is not held
